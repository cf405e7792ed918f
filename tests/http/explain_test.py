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
