#!/usr/bin/env python3
"""Goal: clients at the same time share work and never each other's text; who leaves costs nothing.
Method: threads, several lanes, and the engine's own token counters."""

import re

from skippy_server import (
    ServerTest, chat_body, code_word, completion_body, doc, main, question, run_threads)

CHAT, COMPLETION = '/v1/chat/completions', '/v1/completions'


class ConcurrencyTest(ServerTest):
    options = ('-c', '8192', '-t', '2')

    # Proves D54 and P6. Case I6: single flight.
    def test_eight_clients_with_one_new_prompt_cause_one_prefill_and_one_entry(self):
        server = self.start('-np', '4')
        for number in range(3):
            before = server.engine()['computed_tokens_total']
            replies = run_threads(
                lambda seed: server.chat(question(seed), cache_salt=f'{seed}'), [30 + number] * 8)
            for reply in replies:
                self.assertIn(code_word(30 + number), reply.text)
            prompt_tokens = replies[0].prompt_tokens
            self.assertEqual(sorted(r.computed for r in replies), [1] * 7 + [prompt_tokens])
            self.assertEqual(server.engine()['computed_tokens_total'] - before, prompt_tokens + 7)
        status = server.wait_until_durable()
        # Per prompt: the prompt, and the prompt with its answer.
        self.assertLessEqual(status['usage']['manifests'], 6)
        self.assertEqual(status['activity']['bytes_written'], status['usage']['payload_bytes'])
        self.assertIsNone(status['activity']['last_error'])

    # Proves P1. Case I1.
    def test_no_answer_holds_the_marker_of_another_conversation(self):
        server = self.start('-np', '2')
        markers = [code_word(seed) for seed in range(20)]

        def talk(seed):
            return server.chat(question(seed, 60)).text
        texts = [talk(seed) for seed in range(20)]
        for turn in range(2):
            for first in range(0, 20, 2):
                pair = [(first + 5 * turn) % 20, (first + 7 + turn) % 20]
                texts += run_threads(talk, pair)
                for seed, text in zip(pair, texts[-2:]):
                    self.assertIn(markers[seed], text)
                    others = [m for i, m in enumerate(markers) if i != seed and m in text]
                    self.assertEqual(others, [])
        self.assertFalse(any('\ufffd' in text or re.search(r'(.)\1{7}', text) for text in texts))

    # Proves O15. Case F1.
    def test_who_hangs_up_stops_costing_tokens_streamed_or_not(self):
        server = self.start('-np', '1')
        for seed, stream in ((40, True), (41, False)):
            body = chat_body(question(seed), max_tokens=4000, ignore_eos=True, stream=stream)
            before = server.engine()
            with server.open(CHAT, body):
                server.wait_alive(lambda: server.engine()['generated_tokens_total']
                                  > before['generated_tokens_total'], 'the first token')
            server.wait_until_idle()
            after = server.engine()
            self.assertEqual(after['cancelled_total'] - before['cancelled_total'], 1)
            self.assertLess(after['generated_tokens_total'] - before['generated_tokens_total'],
                            3000)
            self.assertEqual(server.complete('One two', max_tokens=2).status, 200)

    # Proves O15 and F11. Case F3.
    def test_queued_requests_of_clients_that_left_are_never_computed_or_stored(self):
        server = self.start('-np', '1')
        busy = server.open(CHAT, chat_body(question(50), max_tokens=7000, ignore_eos=True))
        server.wait_alive(lambda: server.engine()['lanes_busy'] == 1, 'the busy lane')
        gone = [server.open(COMPLETION, completion_body(doc(300, seed)))
                for seed in range(60, 70)]
        server.wait_alive(lambda: server.engine()['queued'] == 10, 'ten queued requests')
        before = server.engine()
        for connection in gone:
            connection.close()
        server.wait_alive(lambda: server.engine()['queued'] == 0, 'an empty queue')
        self.assertEqual(server.engine()['cancelled_total'] - before['cancelled_total'], 10)
        busy.close()
        live = server.complete(doc(20, 99), max_tokens=2)
        after = server.engine()
        self.assertEqual(after['computed_tokens_total'] - before['computed_tokens_total'],
                         live.computed)
        self.assertEqual(after['prompt_tokens_total'] - before['prompt_tokens_total'],
                         live.prompt_tokens)
        for seed in range(60, 70):
            self.assertLess(server.complete(doc(300, seed), max_tokens=1).cached, 16)

    # Case F5.
    def test_bad_requests_leave_the_next_good_one_alone(self):
        server = self.start_cold('-np', '1')
        bad = ((COMPLETION, {'prompt': []}), (COMPLETION, {}), (COMPLETION, b'{"prompt": '),
               (COMPLETION, {'prompt': 'a', 'max_tokens': -5}),
               (COMPLETION, {'prompt': 'a', 'n': 1000000}), (COMPLETION, {'prompt': {'a': 1}}),
               (COMPLETION, {'prompt': [99999999]}),
               (COMPLETION, {'prompt': 'a', 'max_tokens': '5'}),
               (COMPLETION, {'prompt': doc(9000, 1)}), (COMPLETION, b''), (CHAT, {'messages': []}),
               (CHAT, {'messages': None}), (CHAT, {'messages': [{}]}), (CHAT, {}),
               (CHAT, {'messages': [{'role': 'user'}]}), (CHAT, b'\xff\xfe'),
               (CHAT, {'messages': [{'role': 'user', 'content': 'a'}], 'temperature': 'hot'}))
        for path, body in bad:
            reply = server.post(path, body)
            self.assertIn(reply.status, (400, 413, 422), (path, body, reply.body))
            self.assertTrue(reply.body['error']['message'])
            self.assertTrue(reply.body['error']['type'])
            self.assertEqual(server.complete('One two', max_tokens=1).status, 200)
        self.assertEqual(server.engine()['lanes_busy'], 0)


if __name__ == '__main__':
    main()
