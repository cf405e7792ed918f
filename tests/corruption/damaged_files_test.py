#!/usr/bin/env python3
"""Goal: damage below the cache root costs time, never an answer: 200 always, the right text, the
damage counted once and never tried again. Method: flip, cut, empty, zero and delete the files of a
stopped or running server. Answers are compared bit for bit with those of a server without a disk
tier: K/V types whose results do not depend on cells, and whole prompts of one batch."""

import os
import shutil

from skippy_server import (
    PLACEMENT_FREE, STATUS_PATH, ServerTest, call, code_word, main, question, root_bytes)

PACK_HEADER_BYTES = 4096
SEEDS = (1, 2, 3)


def flip(path, offset):
    with open(path, 'r+b') as file:
        file.seek(offset)
        byte = file.read(1)[0]
        file.seek(offset)
        file.write(bytes([byte ^ 0x10]))


def first_payload_byte(path):
    """Offset of the first byte of payload that is not zero, a little way in."""
    with open(path, 'rb') as file:
        data = file.read()
    return next(i for i in range(PACK_HEADER_BYTES + 100, len(data)) if data[i])


class DamagedFilesTest(ServerTest):
    options = ServerTest.options + PLACEMENT_FREE

    def setUp(self):
        super().setUp()
        server = self.start()
        self.cold = {seed: self.chat(server, seed) for seed in SEEDS}
        for seed, reply in self.cold.items():
            self.assertEqual(reply.cached, 0)
            self.assertIn(code_word(seed), reply.text)
        self.recorded = server.wait_until_durable()
        server.stop()

    def chat(self, server, seed):
        """In a world of its own, so that nothing but the same prompt can be a hit."""
        return server.chat(question(seed), logprobs=True, cache_salt=f'{seed}')

    def assert_cold_answer(self, reply, seed):
        self.assertEqual((reply.cached, reply.text, reply.logprobs),
                         (0, self.cold[seed].text, self.cold[seed].logprobs))

    def ask(self, server, seed):
        reply = self.chat(server, seed)
        self.assertEqual(reply.prompt_tokens, self.cold[seed].prompt_tokens)
        self.assertIn(code_word(seed), reply.text)
        return reply

    def damage(self, number, action):
        """A root of its own with this action applied to it, and a server on it."""
        root = os.path.join(self.work, f'copy-{number}')
        shutil.copytree(self.root, root, copy_function=shutil.copy2)
        os.chmod(root, 0o700)
        action(root)
        return root, self.start(root=root)

    def packs(self, root):
        folder = os.path.join(root, 'packs')
        return [os.path.join(folder, name) for name in sorted(os.listdir(folder))]

    # Proves D58, D62, D64 and P6. Case A1.
    def test_a_flipped_payload_byte_is_answered_cold_counted_once_and_not_tried_again(self):
        flip(self.pack_files()[0], first_payload_byte(self.pack_files()[0]))
        server = self.start()
        self.assert_cold_answer(self.ask(server, 1), 1)
        status = server.wait_until_durable()
        self.assertEqual(status['usage']['quarantined_objects'], 1)
        self.assertEqual(status['activity']['corrupt_entries'], 1)
        self.assertEqual(status['engine']['restores_failed_total'], 1)
        for seed in (2, 3, 1):  # others, and what was recorded anew
            reply = self.ask(server, seed)
            self.assertEqual(reply.cached, reply.prompt_tokens - 1)
        server.wait_until_durable()
        server.kill9()
        server = self.start()
        for seed in SEEDS:
            reply = self.ask(server, seed)
            self.assertEqual(reply.cached, reply.prompt_tokens - 1)
        status = server.status()
        self.assertEqual(status['activity']['corrupt_entries'], 0)
        self.assertEqual(status['engine']['restores_failed_total'], 0)

    # Chats share the words of the template only: nobody depends on another one's bytes for these.
    def test_damage_to_one_chat_does_not_reach_another_that_begins_with_the_same_template(self):
        before = self.contents(self.pack_files())
        server = self.start()
        chats = [question(number, 60) for number in (21, 22)]
        first = server.chat(chats[0])
        packs = self.contents(self.recorded_packs(server))
        second = server.chat(chats[1])
        self.assertEqual(first.cached, 0)
        self.assertLess(second.cached, 32)  # words of the template, from L1
        after = self.recorded_packs(server)
        server.stop()
        # Whatever the first chat wrote is damaged; the blocks of the second came later.
        self.damage_blocks_written(before, packs, after)
        server = self.start()
        reply = server.chat(chats[1])
        self.assertEqual(reply.cached, reply.prompt_tokens - 1)
        self.assertLess(server.chat(chats[0]).cached, 64)

    def contents(self, paths):
        out = []
        for path in paths:
            with open(path, 'rb') as file:
                out.append(file.read())
        return out

    def recorded_packs(self, server):
        server.wait_until_durable()
        return self.pack_files()

    def damage_blocks_written(self, before, between, paths):
        for path, old, new in zip(paths, before, between):
            for block in range(PACK_HEADER_BYTES, len(new), 4096):
                if old[block:block + 4096] != new[block:block + 4096]:
                    flip(path, block)

    # Proves D58: the damage may lie in a later segment of a chain.
    def test_damage_behind_good_segments_leaves_the_good_ones_in_use(self):
        server = self.start()
        messages = question(7, 400)
        cold = server.chat(messages, max_tokens=1)
        server.wait_until_durable()
        server.stop()
        payload = PACK_HEADER_BYTES
        for path in self.pack_files():
            with open(path, 'rb') as file:
                data = file.read()
            used = [i for i in range(payload, len(data), 4096) if any(data[i:i + 4096])]
        flip(path, used[-1] + 3)
        server = self.start()
        reply = server.chat(messages, max_tokens=1)
        self.assertIn(reply.cached, range(256, cold.prompt_tokens - 1))
        self.assertEqual(server.status()['usage']['quarantined_objects'], 1)

    # Proves D65, U23 and P1. Cases A2 and C9.
    def test_cut_empty_and_zeroed_files_are_damage_not_a_crash(self):
        def cut(path, byte_count):
            return lambda root: os.truncate(path(root), byte_count)

        def zero(path):
            def action(root):
                byte_count = os.path.getsize(path(root))
                os.truncate(path(root), 0)
                with open(path(root), 'r+b') as file:
                    file.write(bytes(byte_count))
            return action

        def pack(root):
            return self.packs(root)[0]

        def catalog(root):
            return os.path.join(root, 'catalog.db')
        for number, action in enumerate((
                cut(pack, 0), cut(pack, 1), cut(pack, 8192), zero(pack),
                cut(catalog, 0), cut(catalog, 1), cut(catalog, 8192), zero(catalog))):
            with self.subTest(number=number):
                root, server = self.damage(number, action)
                self.assertEqual(server.status()['effective']['state'], 'active')
                for seed in SEEDS:
                    reply = self.ask(server, seed)
                    self.assertIn(reply.cached, (0, reply.prompt_tokens - 1))
                self.assertEqual(self.ask(server, 1).cached, self.cold[1].prompt_tokens - 1)
                server.wait_until_durable()
                server.stop()
                server = self.start(root=root)
                for seed in SEEDS:
                    reply = self.ask(server, seed)
                    self.assertEqual(reply.cached, reply.prompt_tokens - 1)
                server.stop()

    # Proves D65. Case G16.
    def test_packs_deleted_by_hand_before_the_start_are_misses_and_space_again(self):
        for path in self.pack_files():
            os.unlink(path)
        server = self.start()
        self.assertEqual(server.status()['usage']['manifests'], 0)
        self.assertLessEqual(root_bytes(self.root)[0], server.status()['usage']['used_bytes'])
        for seed in SEEDS:
            self.assert_cold_answer(self.ask(server, seed), seed)
        server.wait_until_durable()
        server.stop()
        server = self.start()
        for seed in SEEDS:
            reply = self.ask(server, seed)
            self.assertEqual(reply.cached, reply.prompt_tokens - 1)

    # Proves P2. Case H4: an open pack lives on; what matters is that nobody fails or lies.
    def test_packs_deleted_under_a_running_server_do_no_harm(self):
        server = self.start()
        for path in self.pack_files():
            os.unlink(path)
        for _ in range(2):
            for seed in SEEDS:
                self.ask(server, seed)
        server.stop()
        server = self.start()
        for seed in SEEDS:
            self.ask(server, seed)
        server.wait_until_durable()
        server.stop()
        server = self.start()
        for seed in SEEDS:
            reply = self.ask(server, seed)
            self.assertEqual(reply.cached, reply.prompt_tokens - 1)

    # Proves D8 and D13. Case M5.
    def test_foreign_files_in_the_root_disturb_nothing_and_stay(self):
        def path(name):
            return os.path.join(self.root, name)
        outside = os.path.join(self.work, 'outside.txt')
        for name, text in ((outside, 'mine'), (path('notes.txt'), 'notes'),
                           (path('line\nbreak'), 'odd'), (path('packs/pack-00000009.skp'), 'junk'),
                           (path('packs/notes.txt'), 'notes')):
            with open(name, 'w', encoding='utf-8') as file:
                file.write(text)
        os.mkdir(path('lost+found'), 0o700)
        os.mkdir(path('empty'))
        os.symlink(outside, path('link'))
        os.mkfifo(path('fifo'))
        foreign = ('notes.txt', 'line\nbreak', 'packs/pack-00000009.skp', 'packs/notes.txt',
                   'lost+found', 'empty', 'link', 'fifo')
        server = self.start()
        for seed in SEEDS:
            reply = self.ask(server, seed)
            self.assertEqual(reply.cached, reply.prompt_tokens - 1)
        self.clear(server)
        self.assertEqual(server.status()['usage']['manifests'], 0)
        for name in foreign:
            self.assertTrue(os.path.lexists(path(name)), name)
        with open(outside, encoding='utf-8') as file:
            self.assertEqual(file.read(), 'mine')

    def clear(self, server):
        self.assertEqual(call(server.management_port, 'DELETE', STATUS_PATH)[0], 200)


if __name__ == '__main__':
    main()
