#!/usr/bin/env python3
"""Goal: what clients count on in usage, hang-ups and bad requests holds when the prompt comes from
RAM. Method: one lane and no disk; between requests a filler takes every cell of the engine, so that
whatever is reused was copied back."""

from issue_server import CHAT, COMPLETION, IssueTest
from skippy_server import chat_body, completion_body, doc, main, question

CONTEXT = 1024
FILLER = [7] * (CONTEXT - 8)


class RamCasesTest(IssueTest):
    options = ('-c', str(CONTEXT), '-np', '1', '-t', '2')

    def start_with_ram(self):
        server = self.start('--cache-ram', '64', root='')
        server.wait_alive(server.state_identity, 'the identity of the model')
        return server

    def push_out(self, server):
        """Afterwards the engine holds the filler alone."""
        server.complete(FILLER, max_tokens=1, cache_salt='filler')
        server.wait_alive(lambda: server.status()['activity']['write_queue_bytes'] == 0,
                          'everything recorded')

    def ask_four(self, server, chat, completion):
        """(how it was asked, usage, text), each from RAM."""
        for path, body in ((CHAT, chat), (COMPLETION, completion)):
            self.push_out(server)
            reply = server.ask(path, body)
            timings = reply.body['timings']
            self.assertEqual((timings['cached_l1'], timings['cached_l2'], timings['cached_l3']),
                             (0, reply.prompt_tokens - 1, 0))
            yield path, reply.usage, reply.text
            self.push_out(server)
            stream = server.stream(path, {**body, 'stream_options': {'include_usage': True}})
            yield path, stream.usage, stream.text

    def assert_nothing_is_held(self, server):
        server.wait_until_idle()
        self.assertEqual(server.wait_alive(
            lambda: server.status()['ram']['in_flight_bytes'] == 0, 'nothing in flight'), True)
        ram = server.status()['ram']
        self.assertLessEqual(ram['resident_bytes'], ram['budget_bytes'])

    # Cases E1 and E4. Proves C34.
    def test_usage_is_the_same_number_in_every_form(self):
        server = self.start_with_ram()
        chat = chat_body(question(1), max_tokens=8)
        completion = completion_body(doc(200, 2), max_tokens=8)
        cold = {path: server.ask(path, body)
                for path, body in ((CHAT, chat), (COMPLETION, completion))}
        for path, usage, text in self.ask_four(server, chat, completion):
            first = cold[path]
            self.assertEqual(usage['prompt_tokens'], first.prompt_tokens)
            self.assertEqual(usage['prompt_tokens_details']['cached_tokens'],
                             first.prompt_tokens - 1)
            self.assertEqual(usage['total_tokens'],
                             usage['prompt_tokens'] + usage['completion_tokens'])
            self.assertEqual(text, first.text)

    # Case E5.
    def test_streamed_usage_stands_in_a_chunk_of_its_own(self):
        server = self.start_with_ram()
        body = chat_body(question(3), max_tokens=6)
        for wanted in (None, True, False):
            if wanted is not None:
                body['stream_options'] = {'include_usage': wanted}
            self.push_out(server)
            chunks = server.stream(CHAT, body).chunks
            empty = [chunk for chunk in chunks if not chunk['choices']]
            self.assertEqual(len(empty), 1 if wanted else 0)
            with_choice = [chunk for chunk in chunks if chunk['choices']]
            self.assertIsNotNone(with_choice[-1]['choices'][0]['finish_reason'])
            if wanted:
                self.assertIs(empty[0], chunks[-1])
                self.assertGreater(
                    empty[0]['usage']['prompt_tokens_details']['cached_tokens'], 100)

    # Case F1.
    def test_who_hangs_up_on_a_restored_prompt_leaves_it_whole(self):
        server = self.start_with_ram()
        tokens = server.chat(question(4)).prompt_tokens
        for stream in (True, False):
            self.push_out(server)
            before = server.engine()
            with server.open(CHAT, chat_body(question(4), max_tokens=4000, ignore_eos=True,
                                             stream=stream)):
                server.wait_alive(lambda: server.engine()['generated_tokens_total']
                                  > before['generated_tokens_total'], 'the first token')
            self.assertEqual(server.complete('One two', max_tokens=2).status, 200)
            self.assert_nothing_is_held(server)
            after = server.engine()
            self.assertEqual(after['cancelled_total'] - before['cancelled_total'], 1)
            self.assertEqual(after['cached_l2_tokens_total'] - before['cached_l2_tokens_total'],
                             tokens - 1)
            self.push_out(server)
            self.assertEqual(server.chat(question(4)).cached, tokens - 1)

    # Case F3.
    def test_queued_requests_of_clients_that_left_are_not_restored(self):
        server = self.start_with_ram()
        prompts = [doc(100, seed) for seed in range(60, 70)]
        for prompt in prompts:
            server.complete(prompt, max_tokens=1)
        self.push_out(server)
        busy = server.open(COMPLETION, completion_body(doc(20, 5), max_tokens=900,
                                                       ignore_eos=True))
        server.wait_alive(lambda: server.engine()['lanes_busy'] == 1, 'the busy lane')
        gone = [server.open(COMPLETION, completion_body(prompt)) for prompt in prompts]
        server.wait_alive(lambda: server.engine()['queued'] == 10, 'ten queued requests')
        before = server.engine()
        for connection in gone:
            connection.close()
        server.wait_alive(lambda: server.engine()['queued'] == 0, 'an empty queue')
        busy.close()
        self.assert_nothing_is_held(server)
        after = server.engine()
        for counter in ('restores_total', 'cached_l2_tokens_total', 'computed_tokens_total'):
            self.assertEqual(after[counter], before[counter], counter)
        self.push_out(server)
        live = server.complete(prompts[0], max_tokens=1)
        self.assertEqual(live.cached, live.prompt_tokens - 1)

    # Case F5.
    def test_bad_requests_leave_the_next_restored_one_alone(self):
        server = self.start_with_ram()
        tokens = server.complete(doc(100, 6), max_tokens=1).prompt_tokens
        for path, body in ((COMPLETION, {'prompt': []}), (COMPLETION, b'{"prompt": '),
                           (COMPLETION, {'prompt': doc(100, 6), 'max_tokens': -5}),
                           (COMPLETION, {'prompt': doc(100, 6), 'n': 1000000}),
                           (CHAT, {'messages': [{'role': 'user'}]})):
            self.push_out(server)
            self.assertIn(server.post(path, body).status, (400, 413, 422), (path, body))
            reply = server.complete(doc(100, 6), max_tokens=1)
            self.assertEqual((reply.cached, reply.prompt_tokens), (tokens - 1, tokens))
        self.assert_nothing_is_held(server)


if __name__ == '__main__':
    main()
