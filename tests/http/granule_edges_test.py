#!/usr/bin/env python3
"""Goal: no off-by-one where segments end (256 tokens each).
Method: prompts of exactly n tokens around the edges, cold, resident and restored after a kill,
each alone in its server, so that answers are compared bit for bit."""

from skippy_server import ServerTest, code_word, doc, main

SEGMENT_TOKENS = 256
LENGTHS = [n * SEGMENT_TOKENS + d for n in (1, 2) for d in (-1, 0, 1)]


class GranuleEdgesTest(ServerTest):

    def prompt(self, server, token_count):
        """Ends in a fact and its question, cut from the front to the wanted length."""
        text = doc(500, token_count, code_word(token_count)) + '\n\nThe code word for harbor is'
        tokens = server.tokenize(text)
        self.assertGreater(len(tokens), token_count)
        return tokens[-token_count:]

    # Proves O13. Case A7.
    def test_resident_and_restored_answers_are_the_same_bits(self):
        for n in LENGTHS:
            with self.subTest(tokens=n):
                self.compare_resident_and_restored(n)

    def compare_resident_and_restored(self, n):
        server = self.start()
        prompt = self.prompt(server, n)

        def ask():
            return server.complete(prompt, max_tokens=10, logprobs=1, cache_salt=f'{n}')
        cold = ask()
        self.assertEqual((cold.prompt_tokens, cold.cached), (n, 0))
        resident = ask()
        self.assertEqual(resident.body['timings']['cached_l1'], n - 1)
        self.assertIn(code_word(n)[:4], resident.text)
        server.wait_until_durable()
        server.kill9()
        server = self.start()
        restored = ask()
        self.assertEqual(restored.body['timings']['cached_l3'], n - 1)
        self.assertEqual(restored.text, resident.text)
        self.assertEqual(restored.logprobs, resident.logprobs)
        server.stop()

    # A branch in the middle of a segment uses a part of its rows, if it leaves after the segment's
    # head of 32 tokens; those are what unrelated chats may have in common.
    def test_a_prompt_that_branches_anywhere_in_a_segment_reuses_what_is_common(self):
        server = self.start()
        base = self.prompt(server, 513)
        server.complete(base, max_tokens=1)
        server.wait_until_durable()
        server.kill9()
        server = self.start()
        other = server.tokenize(' elephant')
        for common in (32, 255, 256, 288, 300, 511, 512):
            self.assertNotEqual(base[common], other[0])
            self.assertEqual(server.complete(base[:common] + other * 2, max_tokens=1).cached,
                             common)


if __name__ == '__main__':
    main()
