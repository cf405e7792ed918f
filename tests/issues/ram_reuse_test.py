#!/usr/bin/env python3
"""Goal: what is found again in the engine and after a restart is found in RAM too. Method: the real
server with a RAM tier and no disk; other prompts push everything out of the engine before each
question, so that a hit can only come from RAM."""

import random

from issue_server import CHAT, IssueTest
from skippy_server import chat_body, code_word, doc, main, question, run_threads

GRANULE = 31  # the first 31 tokens of a segment are not used alone


class RamReuseTest(IssueTest):
    options = ('-c', '4096', '-np', '1', '-t', '2', '--cache-ram', '128')

    def begin(self, *options):
        server = self.start(*options, root='')
        server.wait_alive(server.state_identity, 'the identity of the model')
        return server

    def chat_from_ram(self, server, messages, **more):
        self.push_out(server)
        reply = server.chat(messages, **more)
        self.assertEqual(reply.body['timings']['cached_l3'], 0)
        self.assertGreaterEqual(reply.body['timings']['cached_l2'] + GRANULE, reply.cached)
        return reply

    # Case C1.
    def test_a_shared_head_is_reused_by_every_tail(self):
        server = self.begin()
        head = doc(300, 4)
        head_tokens = len(server.tokenize(head))

        def messages(n):
            return [{'role': 'system', 'content': head},
                    {'role': 'user', 'content': f'Say hi. n={n}'}]
        server.chat(messages(0), max_tokens=4)
        for n in range(1, 4):
            reply = self.chat_from_ram(server, messages(n), max_tokens=4)
            self.assertGreaterEqual(reply.cached, head_tokens)
            self.assertLess(reply.cached, reply.prompt_tokens - 1)

    # Case C3: the engine holds one of the two prompts.
    def test_a_short_prompt_between_does_not_push_the_long_one_out(self):
        server = self.begin('-c', '1024')
        for number in range(3):
            long = server.complete(doc(500, 5), max_tokens=4)
            self.assertEqual(long.cached, 0 if number == 0 else long.prompt_tokens - 1)
            self.push_out(server)
            server.complete('The quick brown fox jumps', max_tokens=4)
        self.assertGreater(server.engine()['cached_l2_tokens_total'], 2 * (long.cached - 1))

    # Case C5.
    def test_conversations_that_ran_one_after_the_other_are_both_found(self):
        server = self.begin()

        def converse(seed, turns):
            messages = question(seed, 60)
            for turn in range(turns):
                reply = server.chat(messages, max_tokens=8)
                messages = messages + [{'role': 'assistant', 'content': reply.text},
                                       {'role': 'user', 'content': doc(25, 100 * seed + turn)}]
            return messages, reply.prompt_tokens
        talks = [converse(6, 3), converse(7, 5)]
        for messages, known_tokens in reversed(talks):
            reply = self.chat_from_ram(server, messages, max_tokens=2)
            self.assertGreaterEqual(reply.cached, known_tokens - 1)

    # Case C7.
    def test_a_stream_that_was_hung_up_leaves_its_prompt_reusable(self):
        server = self.begin()
        messages = question(8, 250)
        stream = server.stream(CHAT, chat_body(messages, max_tokens=500, ignore_eos=True),
                               stop_after=10)
        server.wait_until_idle()
        prompt_tokens = len(server.tokenize(messages[0]['content']))
        messages += [{'role': 'assistant', 'content': stream.text},
                     {'role': 'user', 'content': 'Something else.'}]
        reply = self.chat_from_ram(server, messages, max_tokens=1)
        self.assertGreaterEqual(reply.cached, prompt_tokens - 1)

    # Case C11.
    def test_a_partial_hit_does_not_block_storing(self):
        server = self.begin()
        first = doc(400, 9)
        words = first.split(' ')
        words[len(words) * 6 // 10] = 'elephant'
        second = ' '.join(words)
        shared = len(server.tokenize(second))
        server.complete(first, max_tokens=1)
        self.push_out(server)
        reply = server.complete(second + ' Ask 0.', max_tokens=1)
        self.assertIn(reply.cached, range(shared // 2, shared * 7 // 10))
        for n in range(1, 4):
            self.push_out(server)
            reply = server.complete(f'{second} Ask {n}.', max_tokens=1)
            self.assertGreaterEqual(reply.cached, shared - 2 - GRANULE)

    # Case A7.
    def test_answers_at_the_edges_of_segments_are_those_of_the_resident_state(self):
        server = self.begin()
        for n in (255, 256, 257, 511, 512, 513):
            text = doc(500, n, code_word(n)) + '\n\nThe code word for harbor is'
            prompt = server.tokenize(text)[-n:]

            def ask():
                return server.complete(prompt, max_tokens=10, cache_salt=f'{n}')
            self.assertEqual(ask().cached, 0)
            resident = ask()
            self.push_out(server)
            restored = ask()
            self.assertEqual(restored.body['timings']['cached_l2'], n - 1)
            self.assertEqual(restored.text, resident.text)
            self.assertIn(code_word(n)[:4], restored.text)

    # Cases I1 and I4.
    def test_answers_under_load_are_right_and_nobody_elses(self):
        server = self.begin('-c', '1536', '-np', '4')
        markers = [code_word(seed) for seed in range(16)]
        order = [seed for seed in range(16) for _ in range(6)]
        random.Random(4).shuffle(order)

        def client(seeds):
            return [(seed, server.chat(question(seed, 150)).text) for seed in seeds]
        for answers in run_threads(client, [order[i::8] for i in range(8)]):
            for seed, text in answers:
                self.assertEqual([m for m in markers if m in text], [markers[seed]])
                self.assertNotIn('\ufffd', text)
        self.assertGreater(server.engine()['cached_l2_tokens_total'], 0)


if __name__ == '__main__':
    main()
