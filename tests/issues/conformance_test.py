#!/usr/bin/env python3
"""Goal: what clients rely on in answers holds with the real model, streamed and not, on a cached
prompt and after a restart. Method: the real server; values compared between ways of asking."""

import json

from issue_server import CHAT, COMPLETION, TOOL_OPTIONS, IssueTest, tool
from skippy_server import call, chat_body, completion_body, doc, main, question

COLOURS = {'type': 'object', 'properties': {'colour': {'enum': ['red', 'green', 'blue']}},
           'required': ['colour'], 'additionalProperties': False}
ENOUGH = 200  # tokens for a short answer in JSON, white space included


def schema_format(schema):
    return {'type': 'json_schema', 'json_schema': {'name': 's', 'schema': schema}}


def finishes(stream):
    return [c['choices'][0]['finish_reason'] for c in stream.chunks if c['choices']]


class ConformanceTest(IssueTest):
    options = ('-c', '1024', '-np', '2', '-t', '2')

    # Case K1.
    def test_a_prompt_over_the_context_is_refused_before_any_event(self):
        for _, server in self.each_tier():
            for stream in (False, True):
                reply = server.post(CHAT, chat_body([{'role': 'user', 'content': doc(900, 1)}],
                                                    stream=stream))
                self.assertEqual(reply.status, 400)
                self.assertEqual(reply.body['error']['code'], 'context_length_exceeded')
                self.assertIn('1024', reply.body['error']['message'])
                body = completion_body([5] * 1020, max_tokens=200, ignore_eos=True)
                if stream:
                    self.assertEqual(finishes(server.stream(COMPLETION, body))[-1], 'length')
                else:
                    reply = server.ask(COMPLETION, body)
                    self.assertEqual(reply.body['choices'][0]['finish_reason'], 'length')

    # Case K3.
    def test_the_end_of_the_context_is_a_finish_reason(self):
        body = completion_body([9] * 1004, max_tokens=200, ignore_eos=True)
        for _, server in self.each_tier():
            reply = server.ask(COMPLETION, body)
            stream = server.stream(COMPLETION, {**body, 'stream_options': {'include_usage': True}})
            self.assertEqual(finishes(stream)[-1], 'length')
            for usage in (reply.usage, stream.usage):
                self.assertLessEqual(usage['total_tokens'], 1024)
                self.assertGreaterEqual(usage['completion_tokens'], 18)
            self.assertEqual(stream.text, reply.text)

    # Case L1.
    def test_the_finish_reason_is_in_the_last_choice_chunk_only(self):
        messages = question(3)
        text = None
        for tier, server in self.each_tier(*TOOL_OPTIONS):
            text = text or server.chat(messages).text
            self.assertGreater(len(text), 3)
            required = {'tools': [tool('paint')], 'tool_choice': 'required', 'max_tokens': ENOUGH}
            for more, wanted in (({'max_tokens': 200}, 'stop'), ({'max_tokens': 2}, 'length'),
                                 ({'stop': text[1:3]}, 'stop'), (required, 'tool_calls')):
                body = chat_body(messages, **{'max_tokens': 64, **more})
                plain = server.ask(CHAT, body)
                self.assertEqual(plain.body['choices'][0]['finish_reason'], wanted, (tier, more))
                seen = finishes(server.stream(CHAT, body))
                self.assertEqual(seen[-1], wanted)
                self.assertEqual(set(seen[:-1]), {None})

    # Case L3.
    def test_streams_show_nothing_of_a_stop_string_and_lose_nothing_without_one(self):
        body = chat_body(question(4), max_tokens=24, ignore_eos=True)
        for _, server in self.each_tier():
            whole = server.ask(CHAT, body).text
            middle = whole[4:10]  # over several tokens
            for stop in ([middle], middle, [whole[-1] + '\nAAAA'], [middle + 'Z', middle],
                         ['\U0001f600'], [whole[6:8], whole[6:10]]):
                plain = server.ask(CHAT, {**body, 'stop': stop})
                self.assertEqual(server.stream(CHAT, {**body, 'stop': stop}).text, plain.text)
                ends = [whole.find(s) for s in ([stop] if isinstance(stop, str) else stop)]
                ends = [end for end in ends if end >= 0]
                self.assertEqual(plain.text, whole[:min(ends)] if ends else whole)

    # Case L6.
    def test_a_schema_holds_at_any_temperature_or_is_refused(self):
        for _, server in self.each_tier():
            for seed in range(10):
                reply = server.chat(question(5), temperature=1.5, seed=seed, max_tokens=ENOUGH,
                                    response_format=schema_format(COLOURS))
                self.assertIn(json.loads(reply.text)['colour'], ('red', 'green', 'blue'))
                reply = server.complete('The colour is', temperature=1.5, seed=seed,
                                        max_tokens=ENOUGH, json_schema=COLOURS)
                self.assertIn(json.loads(reply.text)['colour'], ('red', 'green', 'blue'))
            for path, base in ((CHAT, chat_body(question(5))), (COMPLETION, completion_body('x'))):
                for wrong in ({'type': 'foo'},
                              schema_format({'type': 'object', 'minProperties': 1}),
                              schema_format({'type': 'string', 'pattern': '^(?<=a)b$'})):
                    reply = server.post(path, {**base, 'response_format': wrong})
                    self.assertEqual(reply.status, 400, (path, wrong, reply.body))
                    self.assertTrue(reply.body['error']['message'])
                # A keyword that JSON schema does not know says nothing.
                for right in ({'type': 'json_object'},
                              schema_format({'type': 'object', 'unheardOf': 1})):
                    good = server.ask(path, {**base, 'max_tokens': ENOUGH,
                                             'response_format': right})
                    if good.body['choices'][0]['finish_reason'] == 'stop':
                        self.assertIsInstance(json.loads(good.text), dict)

    # Case L7.
    def test_tool_choice_is_obeyed(self):
        tools = [tool('paint'), tool('print')]
        named = {'type': 'function', 'function': {'name': 'print'}}
        for _, server in self.each_tier(*TOOL_OPTIONS):
            def names(choice, stream):
                body = chat_body(question(6), tools=tools, tool_choice=choice, max_tokens=ENOUGH)
                if not stream:
                    message = server.ask(CHAT, body).body['choices'][0]['message']
                    return [c['function']['name'] for c in message.get('tool_calls') or []]
                return [c['function']['name'] for chunk in server.stream(CHAT, body).chunks
                        for choice in chunk['choices']
                        for c in choice['delta'].get('tool_calls') or []
                        if c.get('function', {}).get('name')]
            for stream in (False, True):
                self.assertEqual(names('none', stream), [])
                self.assertIn(names('required', stream), (['paint'], ['print']))
                self.assertEqual(names(named, stream), ['print'])
            unknown = {'type': 'function', 'function': {'name': 'sing'}}
            for more in ({'tools': tools, 'tool_choice': unknown}, {'tool_choice': 'required'},
                         {'tool_choice': named}):
                self.assertEqual(server.post(CHAT, chat_body(question(6), **more)).status, 400)

    # Case L9.
    def test_every_generated_token_has_its_logprob(self):
        chat = chat_body(question(7), max_tokens=8, ignore_eos=True, logprobs=True, top_logprobs=3)
        text = completion_body('The river', max_tokens=8, ignore_eos=True, logprobs=3)
        for _, server in self.each_tier():
            plain = server.ask(CHAT, chat).logprobs
            streamed = [entry for chunk in server.stream(CHAT, chat).chunks
                        for choice in chunk['choices'] if choice.get('logprobs')
                        for entry in choice['logprobs']['content']]
            self.assertEqual(len(plain), 8)
            self.assertEqual([e['token'] for e in streamed], [e['token'] for e in plain])
            for entry in plain:
                top = [t['logprob'] for t in entry['top_logprobs']]
                self.assertLessEqual(entry['logprob'], 0)
                self.assertEqual(top, sorted(top, reverse=True))
                self.assertIn(entry['token'], [t['token'] for t in entry['top_logprobs']])
            self.assertEqual(len(server.ask(COMPLETION, text).logprobs), 8)
            self.assertEqual(8, sum(
                len(choice['logprobs']['tokens'])
                for chunk in server.stream(COMPLETION, text).chunks
                for choice in chunk['choices'] if choice.get('logprobs')))

    # Case L11.
    def test_messages_that_are_none_are_refused_in_json(self):
        server = self.start()
        user = {'role': 'user', 'content': 'x'}
        for messages in ([], None, {}, [{}], [{'role': 'user'}], [{'role': 'king', 'content': 'x'}],
                         [{'role': 'user', 'content': None}]):
            for stream in (False, True):
                reply = server.post(CHAT, {'messages': messages, 'stream': stream})
                self.assertEqual(reply.status, 400, messages)
                self.assertEqual(reply.body['error']['type'], 'invalid_request_error')
        self.assertEqual(server.post(CHAT, {'stream': True}).status, 400)
        server.chat([{'role': 'system', 'content': ''}, user], max_tokens=1)

    # Case L13.
    def test_only_the_state_of_a_prompt_is_reused_never_an_answer(self):
        body = completion_body(doc(100, 8), max_tokens=12)
        for _, server in self.each_tier():
            def ask(**more):
                return server.ask(COMPLETION, {**body, **more}).text
            greedy = ask()
            texts = {}
            for seed in range(1, 21):
                texts[seed] = ask(temperature=1.2, seed=seed)
                self.assertEqual(ask(temperature=1.2, seed=seed), texts[seed], seed)
            self.assertGreaterEqual(len(set(texts.values())), 5)
            self.assertEqual(ask(), greedy)
            first = server.tokenize(greedy)[0]
            self.assertNotEqual(server.tokenize(ask(logit_bias={str(first): -100}))[:1], [first])
            self.assertEqual(ask(stop=[greedy[3]]), greedy[:greedy.index(greedy[3])])

    def test_an_aborted_stream_still_counts_what_it_used(self):
        server = self.start()
        before = server.engine()
        stream = server.stream(CHAT, chat_body(question(9), max_tokens=500, ignore_eos=True),
                               stop_after=6)
        server.wait_until_idle()
        after = server.engine()
        self.assertFalse(stream.done)
        self.assertEqual(after['cancelled_total'] - before['cancelled_total'], 1)
        identity = stream.chunks[0]['id']
        code, explained = call(server.port, 'GET', f'/v1/cache/explain/{identity}')
        self.assertEqual(code, 200)
        timings = explained['timings']
        self.assertEqual(explained['prompt_tokens'],
                         timings['computed'] + timings['cached_l1'] + timings['cached_l3'])
        self.assertEqual(after['prompt_tokens_total'] - before['prompt_tokens_total'],
                         explained['prompt_tokens'])


if __name__ == '__main__':
    main()
