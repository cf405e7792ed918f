#!/usr/bin/env python3
"""Goal: an operator learns why a prompt was computed: what removed its state, which setting
changed, what differs. Method: the real server and `skippy kv-cache explain`; every reason is
provoked."""

import json
import subprocess

from skippy_server import BINARY, STATUS_PATH, ServerTest, call, doc, main


class ExplainTest(ServerTest):

    def explain(self, server, reply):
        code, body = call(server.port, 'GET', f'/v1/cache/explain/{reply.body["id"]}')
        self.assertEqual(code, 200)
        return body

    def run_verb(self, server, *arguments):
        return subprocess.run([BINARY, 'kv-cache', 'explain', '--port', str(server.port),
                               *arguments], capture_output=True, text=True, check=False)

    def test_removed_state_is_named_with_what_removed_it(self):
        server = self.start()
        prompt = doc(200, 1)
        first = server.complete(prompt, max_tokens=1)
        server.wait_until_durable()
        code, _ = call(server.management_port, 'DELETE', STATUS_PATH)
        self.assertEqual(code, 200)
        again = server.complete(prompt, max_tokens=1)
        self.assertEqual(again.cached, 0)
        prefix = self.explain(server, again)['prefix']
        self.assertEqual(prefix['reason'], 'removed')
        self.assertEqual(prefix['removed']['by'], 'clear')
        self.assertGreaterEqual(prefix['removed']['tokens'], first.prompt_tokens - 1)
        # What was removed only later explains nothing.
        self.assertEqual(self.explain(server, first)['prefix']['reason'], 'never_seen')
        shown = self.run_verb(server, again.body['id'])
        self.assertEqual(shown.returncode, 0, shown.stderr)
        self.assertIn('by clear', shown.stdout)

    def test_evicted_state_is_named(self):
        server = self.start('-c', '512', budget='12MiB')
        prompt = doc(150, 2)
        server.complete(prompt, max_tokens=1)
        for seed in range(3, 40):
            server.complete(doc(150, seed), max_tokens=1)
            status = server.wait_until_durable()
            if status['activity']['evictions'] > 3:
                break
        reply = server.complete(prompt, max_tokens=1)
        self.assertLess(reply.cached, reply.prompt_tokens - 1)
        prefix = self.explain(server, reply)['prefix']
        self.assertEqual((prefix['reason'], prefix['removed']['by']), ('removed', 'eviction'))

    def test_a_changed_setting_is_named_with_both_values(self):
        server = self.start()
        prompt = doc(200, 3)
        server.complete(prompt, max_tokens=1)
        server.wait_until_durable()
        server.stop()
        server = self.start('-ctk', 'q8_0', '-ctv', 'q8_0', '-fa', 'on')
        reply = server.complete(prompt, max_tokens=1)
        self.assertEqual(reply.cached, 0)
        prefix = self.explain(server, reply)['prefix']
        self.assertEqual(prefix['reason'], 'identity_changed')
        changed = {f['field']: (f['before'], f['now'])
                   for f in prefix['identity_changed']['changed']}
        self.assertIn('type_k', changed)
        self.assertIn('type_v', changed)
        self.assertNotEqual(*changed['type_k'])
        shown = self.run_verb(server, '--json', reply.body['id'])
        self.assertEqual(json.loads(shown.stdout)['prefix'], prefix)

    def test_reasons_that_are_not_a_loss(self):
        server = self.start()
        prompt = server.tokenize(doc(100, 5))
        longer = prompt + server.tokenize(doc(60, 6))

        def reason(tokens, **more):
            reply = server.complete(tokens, max_tokens=1, **more)
            return self.explain(server, reply)['prefix']['reason']
        self.assertEqual(reason(prompt), 'never_seen')
        self.assertEqual(reason(prompt), 'complete')
        self.assertEqual(reason(longer), 'new_text')
        self.assertEqual(reason(longer, cache_prompt=False), 'not_asked')

    def test_what_left_the_engine_is_used_from_32_tokens_on_and_only_if_recorded(self):
        server = self.start('-c', '1024')
        fields = {'kept': {}, 'lost': {'prompt_cache_retention': 'in_memory'}}
        prompts = {name: server.tokenize(doc(400, 20 + i))[:450] for i, name in enumerate(fields)}
        for name, more in fields.items():
            server.complete(prompts[name], max_tokens=1, **more)
        large = server.tokenize(doc(990, 7))[:990]
        server.complete(large, max_tokens=1)  # takes all cells
        server.wait_until_durable()
        begins_alike = prompts['kept'][:20] + server.tokenize(doc(60, 8))
        for tokens, reason in ((begins_alike, 'below_minimum'), (prompts['lost'], 'not_kept')):
            reply = server.complete(tokens, max_tokens=1)
            self.assertLess(reply.cached, 20)
            explained = self.explain(server, reply)['prefix']
            self.assertEqual(explained['reason'], reason)
            server.complete(large, max_tokens=1)

    def test_a_divergence_is_quoted_unless_text_is_off(self):
        for options, quoted in (((), True), (('--no-explain-text',), False)):
            server = self.start_cold(*options)
            server.complete('Today is 2026-11-30. ' + doc(40, 4), max_tokens=1)
            reply = server.complete('Today is 2026-12-01. ' + doc(40, 4), max_tokens=1)
            explained = self.explain(server, reply)
            self.assertEqual(explained['prefix']['reason'], 'diverged')
            self.assertEqual('Today' in json.dumps(explained), quoted)
            self.assertEqual('date differs' in (explained['prefix'].get('hint') or ''), quoted)
            self.assertEqual('hint:' in self.run_verb(server, reply.body['id']).stdout, quoted)
            self.assertNotEqual(self.run_verb(server, 'chatcmpl-unknown').returncode, 0)
            server.stop()


if __name__ == '__main__':
    main()
