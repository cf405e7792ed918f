#!/usr/bin/env python3
"""Goal: with no disk at all, what left the engine comes back from RAM: every revisit of a
conversation computes its new tokens only, and the budget is never passed.
Method: more conversations than the engine can hold, revisited in an order drawn from a fixed seed;
tokens are counted, and where they came from is asked of the server."""

import json
import random
import subprocess

from skippy_server import BINARY, WAIT_S, ServerTest, call, doc, main

LIMITS_PATH = '/api/runtime/kv-cache/limits'
MIB = 1 << 20
CONVERSATIONS, FIRST_TOKENS, TURN_TOKENS, TURNS = 12, 200, 40, 3
SEED = 20261201


class RamTierTest(ServerTest):

    options = ('-c', '1024', '-np', '1', '-t', '2')

    def start_with_ram(self, mib, **more):
        server = self.start('--cache-ram', str(mib), **more)
        server.wait_alive(server.state_identity, 'the identity of the model')
        return server

    def ask(self, server, name, tokens):
        reply = server.complete(tokens, max_tokens=1, cache_salt=name)
        server.wait_alive(lambda: server.status()['activity']['write_queue_bytes'] == 0,
                          'everything recorded')
        return reply

    def set_limit(self, server, mib):
        code, reply = call(server.management_port, 'POST', LIMITS_PATH, {'cache_ram_mib': mib})
        self.assertEqual((code, reply['ram']['budget_bytes']), (200, mib * MIB))

    def assert_ram_within_budget(self, server):
        ram = server.status()['ram']
        self.assertLessEqual(ram['resident_bytes'] + ram['in_flight_bytes'], ram['budget_bytes'])
        return ram

    # Proves C25, C34 and P5.
    def test_every_revisit_computes_only_its_new_tokens_without_a_disk(self):
        server = self.start_with_ram(256, root='')
        order = random.Random(SEED)
        text = server.tokenize(doc(2000, 1))
        names = [f'conversation {i}' for i in range(CONVERSATIONS)]
        held = {}
        for i, name in enumerate(names):
            held[name] = text[i * 30:i * 30 + FIRST_TOKENS]
            self.assertEqual(self.ask(server, name, held[name]).cached, 0)
        for turn in range(TURNS):
            for name in order.sample(names, len(names)):
                before = held[name]
                start = 500 + order.randrange(500)
                held[name] = before + text[start:start + TURN_TOKENS]
                reply = self.ask(server, name, held[name])
                self.assertEqual(reply.cached, len(before), f'seed {SEED}, turn {turn}, {name}')
                self.assert_ram_within_budget(server)
        engine = server.engine()
        self.assertGreater(engine['cached_l2_tokens_total'], engine['cached_l1_tokens_total'])
        self.assertEqual(engine['cached_l3_tokens_total'], 0)
        ram = server.status()['ram']
        self.assertEqual((ram['enabled'], ram['evictions'], ram['admission_refusals']),
                         (True, 0, 0))
        self.assertGreaterEqual(ram['logical_bytes'], ram['resident_bytes'] // 2)

    # Proves C22.
    def test_a_small_budget_keeps_what_was_used_last(self):
        server = self.start_with_ram(64, root='')
        text = server.tokenize(doc(1200, 2))
        self.ask(server, '0', text[:FIRST_TOKENS * 2])
        one = server.status()['ram']['resident_bytes']
        self.set_limit(server, -(-5 * one // MIB))
        for i in range(CONVERSATIONS):
            self.ask(server, f'{i}', text[i * 30:i * 30 + FIRST_TOKENS * 2])
            self.assert_ram_within_budget(server)
        ram = server.status()['ram']
        self.assertGreater(ram['evictions'], 0)
        # Pushes the last conversation out of the engine, and an older one out of RAM.
        self.ask(server, 'another', text[600:900])
        self.ask(server, 'one more', text[700:1000])
        last = text[(CONVERSATIONS - 1) * 30:(CONVERSATIONS - 1) * 30 + FIRST_TOKENS * 2]
        self.assertEqual(self.ask(server, f'{CONVERSATIONS - 1}', last).cached, len(last) - 1)

    # Proves C27 and C30.
    def test_ram_and_disk_together_serve_a_restart_from_disk_and_then_from_ram(self):
        server = self.start_with_ram(64)
        prompt = server.tokenize(doc(300, 3))
        self.ask(server, 'a', prompt)
        server.stop()
        server = self.start_with_ram(64)
        other = server.tokenize(doc(500, 4))
        for _ in range(3):
            self.assertEqual(self.ask(server, 'a', prompt).cached, len(prompt) - 1)
            self.ask(server, 'b', other)  # takes the cells
        engine, status = server.engine(), server.status()
        self.assertEqual(status['activity']['fills'], 2)
        self.assertEqual(engine['cached_l3_tokens_total'], 2 * (len(prompt) - 1))
        self.assertGreaterEqual(engine['cached_l2_tokens_total'], len(prompt) - 1)
        self.assertGreater(status['ram']['promotions'], 0)

    def test_the_budget_changes_while_the_server_runs(self):
        server = self.start_with_ram(64, root='')
        text = server.tokenize(doc(1200, 5))
        for i in range(8):
            self.ask(server, f'{i}', text[i * 30:i * 30 + FIRST_TOKENS * 2])
        before = server.status()['ram']['resident_bytes']
        done = subprocess.run([BINARY, 'kv-cache', 'limits', '--cache-ram', '1', '--port',
                               str(server.management_port)], stdin=subprocess.DEVNULL,
                              capture_output=True, text=True, timeout=WAIT_S, check=False)
        self.assertEqual((done.returncode, done.stderr), (0, ''))
        ram = self.assert_ram_within_budget(server)
        self.assertEqual(ram['budget_bytes'], MIB)
        self.assertLess(ram['resident_bytes'], before)
        self.set_limit(server, 32)
        for body in ({}, {'cache_ram_mib': -1}, {'cache_ram_mib': '1'}, {'cache_ram': 1}):
            self.assertEqual(call(server.management_port, 'POST', LIMITS_PATH, body)[0], 400,
                             json.dumps(body))
        self.assertIn('skippy_ram_resident_bytes', server.metrics())

    # Proves C33.
    def test_clear_empties_ram_without_a_disk(self):
        server = self.start_with_ram(64, root='')
        prompt = server.tokenize(doc(300, 6))
        self.ask(server, 'a', prompt)
        code, reply = call(server.management_port, 'DELETE', '/api/runtime/kv-cache')
        self.assertEqual(code, 200)
        self.assertGreater(reply['freed_bytes'], 0)
        self.assertEqual(reply['status']['ram']['resident_bytes'], 0)
        self.assertEqual(self.ask(server, 'a', prompt).cached, 0)


if __name__ == '__main__':
    main()
