#!/usr/bin/env python3
"""Goal: `cached_tokens` and `usage` are right in every form of answer and in every tier.
Method: repeat prompts at once, after SIGTERM and after SIGKILL; count tokens."""

from skippy_server import (
    ServerTest, chat_body, code_word, completion_body, doc, main, question, root_bytes)

CHAT, COMPLETION = '/v1/chat/completions', '/v1/completions'


class CachedTokensTest(ServerTest):

    def assert_usage(self, usage, prompt_tokens, cached):
        self.assertEqual(usage['prompt_tokens'], prompt_tokens)
        self.assertEqual(usage['prompt_tokens_details']['cached_tokens'], cached)
        self.assertEqual(usage['total_tokens'], prompt_tokens + usage['completion_tokens'])

    def ask_in_four_forms(self, server, messages, prompt):
        """The usage of chat and completion, plain and streamed."""
        with_usage = {'stream_options': {'include_usage': True}}
        return [server.chat(messages).usage,
                server.stream(CHAT, chat_body(messages, **with_usage)).usage,
                server.complete(prompt).usage,
                server.stream(COMPLETION, completion_body(prompt, **with_usage)).usage]

    # Proves O1, B7 and D69. Cases E1, E4 and H5.
    def test_all_four_forms_agree_at_once_and_after_both_kinds_of_stop(self):
        server = self.start()
        messages, prompt = question(1), doc(200, 2)
        chat, completion = server.chat(messages), server.complete(prompt)
        self.assertEqual((chat.cached, completion.cached), (0, 0))
        self.assertIn(code_word(1), chat.text)
        expected = [chat.prompt_tokens] * 2 + [completion.prompt_tokens] * 2
        for stop in (None, server.stop, None):
            if stop:
                stop()
                server = self.start()
            for usage, prompt_tokens in zip(self.ask_in_four_forms(server, messages, prompt),
                                            expected):
                self.assert_usage(usage, prompt_tokens, prompt_tokens - 1)
        server.wait_until_durable()
        server.kill9()
        server = self.start()
        for usage, prompt_tokens in zip(self.ask_in_four_forms(server, messages, prompt), expected):
            self.assert_usage(usage, prompt_tokens, prompt_tokens - 1)
        engine = server.engine()
        self.assertEqual(engine['cached_l3_tokens_total'],
                         chat.prompt_tokens - 1 + completion.prompt_tokens - 1)
        self.assertEqual(engine['computed_tokens_total'], 4)

    # Case E5.
    def test_streamed_usage_stands_in_a_chunk_of_its_own_and_only_when_asked_for(self):
        server = self.start_cold()
        bodies = ((CHAT, chat_body(question(1, 30), max_tokens=4)),
                  (CHAT, chat_body(question(1, 30), max_tokens=64, stop=['-'])),
                  (COMPLETION, completion_body(doc(30, 3), max_tokens=4)))
        for path, body in bodies:
            plain = server.ask(path, body)
            for options in ({'stream_options': {'include_usage': True}},
                            {'stream_options': {'include_usage': False}}, {}):
                stream = server.stream(path, {**body, **options})
                self.assertTrue(stream.done)
                wanted = options == {'stream_options': {'include_usage': True}}
                empty = [c for c in stream.chunks if not c['choices']]
                self.assertEqual(len(empty), 1 if wanted else 0)
                if wanted:
                    self.assertIs(empty[0], stream.chunks[-1])
                    self.assertEqual(empty[0]['usage']['completion_tokens'],
                                     plain.usage['completion_tokens'])
                finishes = [c['choices'][0]['finish_reason'] for c in stream.chunks if c['choices']]
                self.assertEqual(finishes[-1], plain.body['choices'][0]['finish_reason'])
                self.assertEqual(set(finishes[:-1]), {None})
                self.assertEqual(stream.text, plain.text)

    # Proves A19 and O13. Case C1.
    def test_a_shared_head_is_reused_by_every_tail(self):
        server = self.start()
        head = doc(300, 4)
        system = {'role': 'system', 'content': head}
        head_tokens = len(server.tokenize(head))

        def ask(n):
            return server.chat([system, {'role': 'user', 'content': f'Say hi. n={n}'}],
                               max_tokens=4)
        self.assertEqual(ask(0).cached, 0)
        for n in range(1, 5):
            reply = ask(n)
            self.assertGreaterEqual(reply.cached, head_tokens)
            self.assertLess(reply.cached, reply.prompt_tokens - 1)
        server.wait_until_durable()
        server.kill9()
        reply = (server := self.start()) and ask(9)
        self.assertGreaterEqual(reply.cached, head_tokens)
        self.assertEqual(reply.body['timings']['cached_l3'], reply.cached)

    # Case C3.
    def test_a_short_prompt_between_does_not_push_the_long_one_out(self):
        server = self.start()
        for number in range(3):
            long = server.complete(doc(500, 5), max_tokens=4)
            self.assertEqual(long.cached, 0 if number == 0 else long.prompt_tokens - 1)
            server.complete('The quick brown fox jumps', max_tokens=4)

    # Case C5.
    def test_conversations_that_ran_one_after_the_other_are_both_found_after_a_restart(self):
        server = self.start('-np', '2')

        def converse(seed, turns):
            messages = question(seed, 60)
            for turn in range(turns):
                reply = server.chat(messages, max_tokens=8)
                messages = messages + [{'role': 'assistant', 'content': reply.text},
                                       {'role': 'user', 'content': doc(25, 100 * seed + turn)}]
            return messages, reply.prompt_tokens
        first, first_tokens = converse(6, 3)
        second, second_tokens = converse(7, 5)
        server.stop()
        server = self.start('-np', '2')
        for messages, known_tokens in ((second, second_tokens), (first, first_tokens)):
            self.assertGreaterEqual(server.chat(messages, max_tokens=2).cached, known_tokens - 1)

    # Proves F11. Case C7.
    def test_a_stream_that_was_hung_up_leaves_its_prompt_reusable(self):
        server = self.start()
        messages = question(8, 250)
        prompt_tokens = server.chat(messages, max_tokens=1).prompt_tokens
        messages[0]['content'] = 'Again. ' + messages[0]['content']
        stream = server.stream(CHAT, chat_body(messages, max_tokens=500, ignore_eos=True),
                               stop_after=10)
        server.wait_until_idle()
        self.assertEqual(server.engine()['cancelled_total'], 1)
        messages += [{'role': 'assistant', 'content': stream.text},
                     {'role': 'user', 'content': 'Something else.'}]
        self.assertGreaterEqual(server.chat(messages, max_tokens=1).cached, prompt_tokens - 1)
        server.wait_until_durable()
        server.kill9()
        server = self.start()
        self.assertGreaterEqual(server.chat(messages, max_tokens=1).cached, prompt_tokens - 1)

    # Proves D13, D65 and D68. Case C9.
    def test_ten_prompts_are_all_there_after_a_restart_and_nothing_is_written_again(self):
        server = self.start()
        prompts = [doc(60, seed) for seed in range(20, 30)]
        for prompt in prompts:
            server.complete(prompt, max_tokens=1)
        before, bytes_before = server.wait_until_durable(), root_bytes(self.root)
        server.stop()
        server = self.start()
        after = server.status()
        self.assertEqual(after['inventory'], before['inventory'])
        for field in ('manifests', 'unique_segments', 'payload_bytes', 'used_bytes'):
            self.assertEqual(after['usage'][field], before['usage'][field], field)
        self.assertFalse(any(after['reconciliation'].values()), after['reconciliation'])
        for prompt in prompts:
            reply = server.complete(prompt, max_tokens=1)
            self.assertEqual(reply.cached, reply.prompt_tokens - 1)
        self.assertEqual(server.wait_until_durable()['activity']['bytes_written'], 0)
        self.assertLessEqual(root_bytes(self.root)[0], bytes_before[0])

    # Case C11.
    def test_a_partial_hit_does_not_block_storing(self):
        server = self.start()
        first = doc(400, 9)
        words = first.split(' ')
        words[len(words) * 6 // 10] = 'elephant'
        second = ' '.join(words)
        total = server.complete(first, max_tokens=1).prompt_tokens
        reply = server.complete(second + ' Ask 0.', max_tokens=1)
        self.assertGreater(reply.cached, total // 2)
        self.assertLess(reply.cached, total * 7 // 10)
        server.wait_until_durable()
        server.kill9()
        server = self.start()
        shared = len(server.tokenize(second))
        for n in range(1, 4):  # the first 31 tokens of a segment are not used alone
            self.assertGreaterEqual(server.complete(f'{second} Ask {n}.', max_tokens=1).cached,
                                    shared - 2 - 31)


if __name__ == '__main__':
    main()
