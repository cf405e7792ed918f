#!/usr/bin/env python3
"""Goal: state is reused where its bytes would be the same, and missed where they would differ.
Method: one prompt, one cache root, and servers that differ in one setting each."""

import os
import shutil

from skippy_server import MODEL, MODEL_Q8, ServerTest, code_word, main, question

SEED = 2


class IdentityTest(ServerTest):
    options = ('-np', '1')

    def cached_by(self, *options, model=MODEL):
        """cached_tokens of the first request to a new server, whose answer must be right."""
        server = self.start(*options, model=model)
        reply = server.chat(question(SEED))
        self.assertIn(code_word(SEED), reply.text)
        self.inventory = server.wait_until_durable()['inventory']
        server.stop()
        self.full = reply.prompt_tokens - 1
        return reply.cached

    # Proves A2 and A14. Case B6: what changes bytes is a miss, what does not is a hit.
    def test_settings_that_change_the_state_miss_and_the_others_hit(self):
        base = ('-c', '4096', '-t', '2', '-fa', 'on')
        self.assertEqual(self.cached_by(*base), 0)
        for name, options in (('same', base),
                              ('context', ('-c', '2048', '-t', '2', '-fa', 'on')),
                              ('threads', ('-c', '4096', '-t', '1', '-fa', 'on')),
                              ('batch', base + ('-b', '256', '-ub', '128')),
                              ('lanes', base + ('-np', '3')),
                              ('alias', base + ('-a', 'another'))):
            self.assertEqual(self.cached_by(*options), self.full, name)
        self.assertEqual(len({e['state_identity'] for e in self.inventory}), 1)
        for name, options in (('K type', base + ('-ctk', 'q8_0')),
                              ('K and V type', base + ('-ctk', 'q8_0', '-ctv', 'q8_0')),
                              ('flash attention', base[:-1] + ('off',))):
            self.assertEqual(self.cached_by(*options), 0, name)
            self.assertEqual(self.cached_by(*options), self.full, name)
        self.assertEqual(self.cached_by(*base), self.full)
        self.assertEqual(len({e['state_identity'] for e in self.inventory}), 4)
        self.assertEqual(len({e['model_identity'] for e in self.inventory}), 1)

    # Proves A15, D67 and N5. Case B1.
    def test_other_weights_under_the_same_file_name_miss_and_the_first_ones_hit_again(self):
        path = os.path.join(self.work, 'm.gguf')
        options = ('-c', '4096', '-a', 'm')
        shutil.copy(MODEL, path)
        self.assertEqual(self.cached_by(*options, model=path), 0)
        first = {e['model_identity'] for e in self.inventory}
        shutil.copy(MODEL_Q8, path)  # into the same inode
        self.assertEqual(self.cached_by(*options, model=path), 0)
        self.assertEqual(self.cached_by(*options, model=path), self.full)
        both = {e['model_identity'] for e in self.inventory}
        self.assertEqual((len(first), len(both)), (1, 2))
        self.assertLess(first, both)
        shutil.copy(MODEL, path)
        self.assertEqual(self.cached_by(*options, model=path), self.full)

    # Proves A23 and A28.
    def test_a_cache_salt_is_a_world_of_its_own(self):
        server = self.start('-c', '4096')
        full = server.chat(question(SEED)).prompt_tokens - 1
        self.assertEqual(server.chat(question(SEED), cache_salt='a').cached, 0)
        self.assertEqual(server.chat(question(SEED), cache_salt='a').cached, full)
        server.stop()
        server = self.start('-c', '4096')
        self.assertEqual(server.chat(question(SEED), cache_salt='b').cached, 0)
        self.assertEqual(server.chat(question(SEED), cache_salt='a').cached, full)
        self.assertEqual(server.chat(question(SEED)).cached, full)


if __name__ == '__main__':
    main()
