#!/usr/bin/env python3
"""Goal: state is reused only where it is the right state, and a setting of today is no reason to
lose what another one can use. Method: restarts with other options, adapters and tokenizers."""

import os
import random

from issue_server import CHAT, RAM, IssueTest, with_bos, write_lora
from skippy_server import (
    MODEL, chat_body, code_word, doc, main, question, run_threads)


class RestoreTest(IssueTest):
    options = ('-np', '1', '-t', '2')

    # Case A5.
    def test_a_prompt_is_right_while_it_is_still_being_written(self):
        # L1 holds one of these prompts: the second request needs what is being written.
        for options, tier in (((), 'l3'), (RAM, 'l2')):
            server = self.start('-c', '768', *options, root=os.path.join(self.work, tier))
            for seed in range(10):
                messages = question(seed, 300)
                head = [{'role': 'user', 'content': messages[0]['content'].split('What is')[0]}]
                server.chat(head, max_tokens=1)
                server.complete(doc(120, 500 + seed), max_tokens=1)
                reply = server.chat(messages)
                self.assertIn(code_word(seed), reply.text)
                self.assertLess(reply.cached, reply.prompt_tokens)
            self.assertEqual(server.engine()['restores_failed_total'], 0)
            self.assertGreater(server.engine()[f'cached_{tier}_tokens_total'], 0)
            server.stop()

    # Case B3: an adapter for one request is refused, one for all is part of the identity.
    def test_adapters_are_worlds_of_their_own(self):
        paths = [os.path.join(self.work, f'{name}.gguf') for name in 'ab']
        for seed, path in enumerate(paths):
            write_lora(path, seed)
        worlds = ((), ('--lora', paths[0]), ('--lora', paths[1]),
                  ('--lora-scaled', f'{paths[0]}:0.5'), ('--lora', ','.join(paths)))
        texts = {}
        for expect_hit in (False, True):
            for world in worlds:
                server = self.start('-c', '2048', *world)
                reply = server.chat(question(1))
                self.assertEqual(reply.cached, reply.prompt_tokens - 1 if expect_hit else 0, world)
                self.assertEqual(texts.setdefault(world, reply.text), reply.text)
                refused = server.post(CHAT, chat_body(question(1), lora=[{'id': 0, 'scale': 1}]))
                self.assertEqual(refused.status, 400)
                self.assertEqual(refused.body['error']['param'], 'lora')
                server.wait_until_durable()
                server.kill9()

    # Case B7.
    def test_a_prefix_that_does_not_fit_now_is_kept_for_when_it_does(self):
        full = question(2, 900)
        part = question(2, 250)
        for options in (('-c', '2048'), ('-c', '2048', '-np', '2')):
            server = self.start(*options)
            tokens = server.chat(full).prompt_tokens
            self.assertGreater(tokens, 1024)
            server.wait_until_durable()
            server.kill9()
            server = self.start('-c', '1024')
            self.assertEqual(server.post(CHAT, chat_body(full)).status, 400)
            self.assertIn(code_word(2), server.chat(part).text)
            server = self.restart(server, *options)
            reply = server.chat(full)
            self.assertIn(code_word(2), reply.text)
            self.assertEqual(reply.cached, tokens - 1)
            server.kill9()

    # Case B10.
    def test_another_tokenizer_misses_and_another_template_of_the_same_tokens_hits(self):
        template = os.path.join(self.work, 'template.jinja')
        with open(template, 'w', encoding='utf-8') as file:
            file.write("{%- for m in messages -%}{{- '<|im_start|>' + m.role + '\\n' -}}"
                       "{{- m.content + '<|im_end|>\\n' -}}{%- endfor -%}"
                       "{%- if add_generation_prompt -%}{{- '<|im_start|>assistant\\n' -}}"
                       "{%- endif -%}")
        bos = os.path.join(self.work, 'bos.gguf')
        with_bos(MODEL, bos)
        server = self.start('-c', '2048')
        tokens = server.chat(question(3)).prompt_tokens
        server = self.restart(server, '-c', '2048', '--chat-template-file', template)
        self.assertEqual(server.chat(question(3)).cached, tokens - 1)
        server = self.restart(server, '-c', '2048', model=bos)
        messages = question(3)
        for turn in range(4):
            reply = server.chat(messages)
            if turn == 0:
                self.assertEqual(reply.cached, 0)
                self.assertEqual(reply.prompt_tokens, tokens + 1)
            else:
                self.assertGreaterEqual(reply.cached, known)
            known = reply.prompt_tokens - 1
            messages += [{'role': 'assistant', 'content': reply.text},
                         {'role': 'user', 'content': doc(20, 80 + turn)}]

    # Case I4.
    def test_answers_stay_right_while_states_move_between_tiers(self):
        server = self.start('-c', '2048', '-np', '4')
        order = [seed for seed in range(16) for _ in range(12)]
        random.Random(4).shuffle(order)

        def client(seeds):
            return [(seed, server.chat(question(seed, 200)).text) for seed in seeds]
        for answers in run_threads(client, [order[i::8] for i in range(8)]):
            for seed, text in answers:
                self.assertIn(code_word(seed), text)
                self.assertNotIn('\ufffd', text)
        status = server.engine()
        self.assertGreater(status['cached_l3_tokens_total'], 0)
        self.assertGreater(status['cached_l1_tokens_total'], 0)


if __name__ == '__main__':
    main()
