#!/usr/bin/env python3
"""Goal: no off-by-one where segments end (256 tokens each).
Method: prompts of exactly n tokens around the edges, cold, resident and restored, with K/V types
whose results do not depend on the cells they lie in, so that answers are compared bit for bit."""

from skippy_server import PLACEMENT_FREE, ServerTest, code_word, doc, main

SEGMENT_TOKENS = 256
LENGTHS = [n * SEGMENT_TOKENS + d for n in (1, 2) for d in (-1, 0, 1)]


class GranuleEdgesTest(ServerTest):
    options = ServerTest.options + PLACEMENT_FREE

    def prompt(self, server, token_count):
        """Ends in a fact and its question, cut from the front to the wanted length."""
        text = doc(500, token_count, code_word(token_count)) + '\n\nThe code word for harbor is'
        tokens = server.tokenize(text)
        self.assertGreater(len(tokens), token_count)
        return tokens[-token_count:]

    # Proves R10, O13 and D32. Case A7.
    def test_resident_and_restored_answers_are_the_same_bits(self):
        server = self.start()
        prompts = {n: self.prompt(server, n) for n in LENGTHS}

        def ask(n):
            return server.complete(prompts[n], max_tokens=10, logprobs=1, cache_salt=f'{n}')
        for n in LENGTHS:
            reply = ask(n)
            self.assertEqual((reply.prompt_tokens, reply.cached), (n, 0))
        resident = {}
        for n in LENGTHS:
            ask(n)  # from the disk, when it is no longer resident
            resident[n] = ask(n)
            self.assertEqual(resident[n].body['timings']['cached_l1'], n - 1)
            self.assertIn(code_word(n)[:4], resident[n].text)
        server.wait_until_durable()
        server.kill9()
        server = self.start()
        for n in LENGTHS:
            restored = ask(n)
            self.assertEqual(restored.body['timings']['cached_l3'], n - 1)
            self.assertEqual(restored.text, resident[n].text, n)
            self.assertEqual(restored.logprobs, resident[n].logprobs, n)

    # Proves D32: a branch in the middle of a segment uses a part of its rows.
    def test_a_prompt_that_branches_anywhere_in_a_segment_reuses_what_is_common(self):
        server = self.start()
        base = self.prompt(server, 513)
        server.complete(base, max_tokens=1)
        server.wait_until_durable()
        server.kill9()
        server = self.start()
        other = server.tokenize(' elephant')
        for common in (1, 255, 256, 257, 300, 511, 512):
            self.assertNotEqual(base[common], other[0])
            self.assertEqual(server.complete(base[:common] + other * 2, max_tokens=1).cached,
                             common)


if __name__ == '__main__':
    main()
