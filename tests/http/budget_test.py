#!/usr/bin/env python3
"""Goal: the budget is a hard limit of the whole root, measured from outside, and what goes is what
was used least recently. Method: more prompts than fit, the root sampled 50 times a second."""

import subprocess

from skippy_server import BINARY, WAIT_S, RootSampler, ServerTest, doc, main, root_bytes

MIB = 1 << 20


class BudgetTest(ServerTest):
    budget = '24MiB'  # four packs of 4 MiB beside the catalog's allowance
    prompt_words = 190  # about a megabyte of state

    def fill(self, server, seeds):
        for seed in seeds:
            server.complete(doc(self.prompt_words, seed), max_tokens=1)

    def hits(self, server, seeds):
        """Which of the prompts are found whole; asking for them without touching the store."""
        found = []
        for seed in seeds:
            reply = server.complete(doc(self.prompt_words, seed), max_tokens=1,
                                    prompt_cache_retention='in_memory')
            found.append(reply.cached == reply.prompt_tokens - 1)
        return found

    # Proves P3, D36, D44, D47 and N7. Cases G1, N4 and G5.
    def test_forty_prompts_never_pass_the_budget(self):
        with RootSampler(self.root) as sampler:
            server = self.start()
            self.fill(server, range(40))
            status = server.wait_until_durable()
        self.assert_within_budget(sampler, 24 * MIB)
        usage = status['usage']
        self.assertEqual(usage['budget_bytes'], 24 * MIB)
        self.assertLessEqual(usage['used_bytes'], 24 * MIB)
        self.assertGreaterEqual(usage['used_bytes'], root_bytes(self.root)[0])
        self.assertGreater(usage['evicted_manifests'], 20)
        self.assertEqual(status['activity']['evictions'], usage['evicted_manifests'])
        self.assertEqual(status['activity']['records_dropped'], 0)
        self.assertEqual(usage['manifests'] + usage['evicted_manifests'],
                         status['activity']['writes'])
        server.stop()
        server = self.start()
        # What status names is what hits: the newest ones.
        kept = len(status['inventory'])
        self.assertGreaterEqual(kept, 10)
        self.assertTrue(all(self.hits(server, range(39, 39 - kept // 2, -1))))
        self.assertFalse(any(self.hits(server, range(20))))

    # Proves D50 and P2. Case G3.
    def test_a_smaller_budget_holds_from_the_start_on_and_keeps_the_newest(self):
        server = self.start(budget='40MiB')
        self.fill(server, range(24))  # less than fits: in order, pack by pack
        status = server.wait_until_durable()
        self.assertGreater(status['usage']['used_bytes'], 20 * MIB)
        self.assertEqual(status['usage']['evicted_manifests'], 0)
        server.stop()
        self.assertGreater(root_bytes(self.root)[0], 20 * MIB)
        server = self.start(budget='16MiB')
        status = server.wait_alive(
            lambda: server.status()['usage']['used_bytes'] <= 16 * MIB and server.status(),
            'the smaller budget')
        self.assertEqual(status['effective']['state'], 'active')
        self.assertLessEqual(root_bytes(self.root)[0], 16 * MIB)
        with RootSampler(self.root) as sampler:
            self.assertEqual(self.hits(server, [23, 22, 21]), [True] * 3)
            self.assertEqual(self.hits(server, [0, 1, 2]), [False] * 3)
            self.fill(server, range(50, 56))
            server.wait_until_durable()
        # Space that was given back inside a pack is a hole: it counts in the size, not on the disk.
        self.assertLessEqual(sampler.allocated_max, 16 * MIB)

    # Proves D50.
    def test_the_budget_changes_while_the_server_runs(self):
        def set_budget(size):
            done = subprocess.run(
                [BINARY, 'kv-cache', 'limits', '--kv-cache-disk-budget', size, '--port',
                 str(server.management_port)], stdin=subprocess.DEVNULL, capture_output=True,
                text=True, timeout=WAIT_S, check=False)
            return done.returncode, done.stderr

        server = self.start(budget='40MiB')
        self.fill(server, range(24))
        self.assertGreater(server.wait_until_durable()['usage']['used_bytes'], 20 * MIB)
        self.assertEqual(set_budget('16MiB'), (0, ''))
        with RootSampler(self.root) as sampler:
            status = server.status()
            self.assertEqual(status['effective']['budget_bytes'], 16 * MIB)
            self.assertEqual(status['effective']['state'], 'active')
            self.assertLessEqual(status['usage']['used_bytes'], 16 * MIB)
            self.assertEqual(self.hits(server, [23, 22, 21]), [True] * 3)
            self.fill(server, range(50, 62))
            server.wait_until_durable()
        self.assertLessEqual(sampler.allocated_max, 16 * MIB)
        self.assertEqual(set_budget('32MiB'), (0, ''))
        self.fill(server, range(70, 90))
        self.assertGreater(server.wait_until_durable()['usage']['used_bytes'], 20 * MIB)
        code, error = set_budget('1MiB')
        self.assertNotEqual(code, 0)
        self.assertIn('budget_below_entry_floor', error)
        self.assertEqual(server.status()['effective']['budget_bytes'], 32 * MIB)

    # Proves D27. Case G10.
    def test_the_least_recently_used_goes_first_also_after_a_restart(self):
        server = self.start()
        self.fill(server, range(10))
        self.fill(server, [3, 0, 1])  # touched after all others
        server.wait_until_durable()
        server.stop()
        server = self.start()
        seed = 100
        while server.wait_until_durable()['usage']['evicted_manifests'] == 0:
            self.fill(server, [seed])
            seed += 1
        server.stop()
        server = self.start()
        self.assertEqual(self.hits(server, [3, 0, 1]), [True] * 3)
        self.assertEqual(self.hits(server, [2]), [False])


if __name__ == '__main__':
    main()
