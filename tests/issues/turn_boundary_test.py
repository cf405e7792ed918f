#!/usr/bin/env python3
"""Goal: the next turn of a conversation finds what the one before left, whatever clients do to
messages and tool calls. Method: conversations over the API; cached_tokens in each tier."""

import json

from issue_server import CHAT, RAM, TOOL_OPTIONS, IssueTest, tool
from skippy_server import call, chat_body, doc, main, question

USER = {'role': 'user', 'content': 'Edit the file.'}
EDIT = [tool('edit', {'path': {'type': 'string'}, 'new': {'type': 'string'},
                      'old': {'type': 'string'}})]
ARGUMENTS = '{"path": "a.txt", "new": "x", "old": "1.50"}'


def call_message(arguments=ARGUMENTS, content=None, calls=1):
    return {'role': 'assistant', 'content': content, 'tool_calls': [
        {'id': f'call_{i}', 'type': 'function',
         'function': {'name': 'edit', 'arguments': arguments}} for i in range(calls)]}


def result_message(text, index=0):
    return {'role': 'tool', 'tool_call_id': f'call_{index}', 'content': text}


class TurnBoundaryTest(IssueTest):

    # Case J1.
    def test_text_that_tokenizes_otherwise_costs_the_answer_at_most(self):
        server = self.start(*RAM)
        asked = []
        for number, text in enumerate(('One.\n\nTwo.', 'a ~ b ~ c', '**x:** 1\n**y:** 2')):
            messages = [{'role': 'user', 'content': f'{doc(60, number)} Repeat: {text}'}]
            first = server.chat(messages, max_tokens=24)
            following = messages + [{'role': 'assistant', 'content': text},
                                    {'role': 'user', 'content': 'Again.'}]
            second = server.chat(following, max_tokens=4)
            self.assertGreaterEqual(second.cached, first.prompt_tokens - 1)
            self.assertLess(second.cached, second.prompt_tokens)
            asked.append((following, first.prompt_tokens))
        for tier in ('L2', 'L3'):
            server = self.to_tier(tier, server, *RAM)
            for following, prompt_tokens in asked:
                reply = server.chat(following, max_tokens=4)
                self.assertGreaterEqual(reply.cached, prompt_tokens - 1, tier)
                from_tier = reply.body['timings'][f'cached_{tier.lower()}']
                self.assertGreater(from_tier, prompt_tokens // 2, tier)

    # Case J3.
    def test_replayed_arguments_keep_their_order_and_spelling(self):
        server = self.start(*TOOL_OPTIONS, *RAM)
        head = [{'role': 'system', 'content': doc(200, 1)}, USER]
        first = head + [call_message(), result_message('done')]
        code, rendered = call(server.port, 'POST', '/apply-template',
                              {'messages': first, 'tools': EDIT})
        self.assertEqual(code, 200)
        self.assertIn(f'<function=edit>{ARGUMENTS}</function>', rendered['prompt'])
        server.chat(first, tools=EDIT, tool_choice='none', max_tokens=2)
        ordered = json.dumps(json.loads(ARGUMENTS), sort_keys=True)
        for tier in ('L1', 'L2', 'L3'):
            server = self.to_tier(tier, server, *TOOL_OPTIONS, *RAM)
            same = server.chat(first, tools=EDIT, tool_choice='none', max_tokens=2)
            self.assertEqual(same.cached, same.prompt_tokens - 1, tier)
            changed = server.chat(head + [call_message(ordered), result_message('done')],
                                  tools=EDIT, tool_choice='none', max_tokens=2)
            self.assertGreater(changed.prompt_tokens, changed.cached, tier)
            self.assertGreater(changed.cached, 200, tier)
            if tier != 'L1':
                self.assertGreater(same.body['timings'][f'cached_{tier.lower()}'], 200)

    # Case J6.
    def test_metadata_that_is_stripped_later_costs_only_what_follows_it(self):
        server = self.start(*RAM)
        history = [{'role': 'system', 'content': doc(400, 2)}]
        known = 0
        for turn in range(8):
            plain = {'role': 'user', 'content': f'Turn {turn}: ' + doc(20, 50 + turn)}
            sent = {'role': 'user', 'content': f'{plain["content"]}<env>time {turn}</env>'}
            reply = server.chat(history + [sent], max_tokens=4)
            self.assertGreaterEqual(reply.cached, known, turn)
            # What the next turn has in common: all but the block that is stripped, and what
            # follows it.
            code, text = call(server.port, 'POST', '/apply-template', {
                'messages': history + [plain], 'add_generation_prompt': False})
            self.assertEqual(code, 200)
            known = len(server.tokenize(text['prompt'])) - 4
            history += [plain, {'role': 'assistant', 'content': reply.text}]
            if turn in (2, 4):
                server = self.to_tier('L2' if turn == 2 else 'L3', server, *RAM)

    # Case J8.
    def test_a_call_without_content_is_part_of_the_prompt(self):
        server = self.start(*TOOL_OPTIONS, *RAM)

        def ask(*more):
            return server.chat([USER, *more], tools=EDIT, tool_choice='none', max_tokens=2)
        base = ask().prompt_tokens
        missing = call_message()
        del missing['content']
        counts = {ask(message, result_message('done')).prompt_tokens
                  for message in (call_message(), call_message(content=''), missing)}
        self.assertEqual(len(counts), 1)
        with_result = counts.pop()
        empty = ask(call_message(), result_message('')).prompt_tokens
        two = ask(call_message(calls=2), result_message('done'), result_message('done', 1))
        self.assertLess(base, empty)
        self.assertLess(empty, with_result)
        self.assertLess(with_result, two.prompt_tokens)
        for tier in ('L2', 'L3'):
            server = self.to_tier(tier, server, *TOOL_OPTIONS, *RAM)
            again = ask(call_message(), result_message('done'))
            self.assertEqual((again.cached, again.prompt_tokens), (with_result - 1, with_result))
            self.assertGreater(again.body['timings'][f'cached_{tier.lower()}'], 0)

    # Case J10.
    def test_roles_in_unusual_places_are_answered_or_refused_clearly(self):
        def say(role, text='Something.'):
            return {'role': role, 'content': text}
        unusual = ([say('system'), say('user'), say('assistant'), say('system'), say('user')],
                   [say('developer'), say('user')],
                   [say('system'), say('developer'), say('user')])
        parts = question(9)
        parts[0] = {'role': 'user', 'content': [{'type': 'text', 'text': parts[0]['content']}]}
        for options in ((), TOOL_OPTIONS):
            for tier, server in self.each_tier(*options):
                for messages in unusual:
                    reply = server.post(CHAT, chat_body(messages, max_tokens=2))
                    self.assertIn(reply.status, (200, 400), (tier, messages))
                    if reply.status == 400:
                        self.assertTrue(reply.body['error']['message'])
                plain = server.chat(question(9), max_tokens=2)
                in_parts = server.chat(parts, max_tokens=2)
                self.assertEqual(in_parts.prompt_tokens, plain.prompt_tokens)
                self.assertEqual(in_parts.cached, plain.prompt_tokens - 1)


if __name__ == '__main__':
    main()
