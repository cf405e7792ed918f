#!/usr/bin/env python3
"""Goal: what operators see and do: status, prune, clear, from the command line and over HTTP; and
what nobody may see: text of prompts. Method: the real command against the real server."""

import json
import os
import subprocess

from skippy_server import (
    BINARY, STATUS_PATH, WAIT_S, ServerTest, call, code_word, doc, main, question, root_bytes)

MIB = 1 << 20


class OperatorTest(ServerTest):

    def kv_cache(self, server, *arguments):
        done = subprocess.run([BINARY, 'kv-cache', *arguments, '--port',
                               str(server.management_port)], stdin=subprocess.DEVNULL,
                              capture_output=True, text=True, timeout=WAIT_S, check=False)
        return done.returncode, done.stdout, done.stderr

    def succeed(self, server, *arguments):
        code, out, error = self.kv_cache(server, *arguments)
        self.assertEqual((code, error), (0, ''))
        return out

    def warm(self, server, seeds):
        for seed in seeds:
            server.complete(doc(150, seed), max_tokens=1, cache_salt=f'{seed}')
        return server.wait_until_durable()

    def cached(self, server, seeds):
        """Tokens found of each prompt; nothing new is stored."""
        return [server.complete(doc(150, seed), max_tokens=1, cache_salt=f'{seed}',
                                prompt_cache_retention='in_memory').cached for seed in seeds]

    # Proves K8, L1, L5, N1, N3-N5 and N7.
    def test_status_is_the_same_for_people_and_programs(self):
        server = self.start()
        status = self.warm(server, range(3))
        shown = json.loads(self.succeed(server, 'status', '--json'))
        for section in ('configured', 'inventory', 'reconciliation', 'activity'):
            self.assertEqual(shown[section], status[section])
        self.assertEqual(shown['usage']['used_bytes'], status['usage']['used_bytes'])
        self.assertEqual(shown['activity']['hits'] + shown['activity']['misses'], 3)
        self.assertEqual(len(shown['inventory']), shown['usage']['manifests'])
        text = self.succeed(server, 'status')
        for word in ('active', 'fixed', self.root, '64.0 MiB', 'skippy-demo',
                     shown['inventory'][0]['model_identity'][:16]):
            self.assertIn(word, text)
        for name in ('skippy_disk_used_bytes', 'skippy_disk_manifests'):
            self.assertIn(name, server.metrics())

    # Proves N16.
    def test_status_works_with_the_tier_off_and_removal_is_a_conflict(self):
        server = self.start_cold()
        self.assertIn('off', self.succeed(server, 'status'))
        for arguments in (('prune', '--yes'), ('clear', '--yes')):
            code, out, error = self.kv_cache(server, *arguments)
            self.assertGreater(code, 0)
            self.assertEqual((out, error.count('\n')), ('', 1))
        self.assertEqual(call(server.management_port, 'DELETE', STATUS_PATH)[0], 409)

    # Proves K3, K7, L3, L4 and L6. Case N5.
    def test_prune_evicts_the_least_recently_used_down_to_the_target(self):
        server = self.start()
        before = self.warm(server, range(12))['usage']
        for target in ('12MB', '0', 'half'):
            code, _, error = self.kv_cache(server, 'prune', '--yes', '--target', target)
            self.assertGreater(code, 0)
            self.assertIn('--target', error)
        self.assertGreater(self.kv_cache(server, 'prune')[0], 0)
        self.assertIn('freed 0', self.succeed(server, 'prune', '--yes', '--target', '60MiB'))
        self.assertEqual(server.status()['usage']['manifests'], before['manifests'])
        reply = json.loads(self.succeed(server, 'prune', '--yes', '--target', '12MiB', '--json'))
        after = reply['status']['usage']
        self.assertLessEqual(after['used_bytes'], 12 * MIB)
        self.assertEqual(reply['freed_bytes'], before['used_bytes'] - after['used_bytes'])
        self.assertLessEqual(root_bytes(self.root)[0], 12 * MIB)
        self.assertGreater(after['manifests'], 0)
        server.stop()
        server = self.start()
        cached = self.cached(server, [11, 0])
        self.assertGreater(cached[0], 100)
        self.assertEqual(cached[1], 0)

    # Proves K2, K11 and L3. Cases N1 and N5.
    def test_clear_needs_yes_and_leaves_no_hit_in_any_tier(self):
        server = self.start()
        before = self.warm(server, range(5))
        code, out, error = self.kv_cache(server, 'clear')
        self.assertGreater(code, 0)
        self.assertEqual((out, '--yes' in error), ('', True))
        for method, body in (('GET', None), ('DELETE', {'model_identity': '  '}),
                             ('DELETE', {'all': True}), ('DELETE', b'{"model')):
            status, _ = call(server.management_port, method, STATUS_PATH, body)
            self.assertEqual(status, 200 if method == 'GET' else 400, body)
        self.assertEqual(call(server.management_port, 'DELETE', STATUS_PATH,
                              headers={'Origin': 'http://elsewhere.example'})[0], 403)
        self.assertEqual(server.status()['usage']['manifests'], before['usage']['manifests'])
        self.succeed(server, 'clear', '--yes', '--model-identity', '0' * 64)
        self.assertEqual(server.status()['usage']['manifests'], before['usage']['manifests'])
        reply = json.loads(self.succeed(server, 'clear', '--yes', '--json'))
        usage = reply['status']['usage']
        self.assertEqual((usage['manifests'], usage['unique_segments'], usage['payload_bytes']),
                         (0, 0, 0))
        self.assertGreater(reply['freed_bytes'], before['usage']['payload_bytes'])
        self.assertLess(root_bytes(self.root)[0], MIB)
        self.assertEqual(self.cached(server, [4, 3, 2, 1, 0]), [0] * 5)
        self.succeed(server, 'clear', '--yes')
        server.stop()
        server = self.start()
        self.assertEqual(self.cached(server, [4, 3, 2, 1, 0]), [0] * 5)

    # Proves N15 and D11. Case I8.
    def test_no_endpoint_log_or_file_name_shows_text_and_files_are_private(self):
        secret = 'ZQXJ-SECRET-83621'
        command = self.command()
        server = self.launch(command, before_exec=lambda: os.umask(0)).wait_until_ready()
        server.chat(question(1) + [{'role': 'assistant', 'content': 'ok'},
                                   {'role': 'user', 'content': f'My secret is {secret}.'}])
        answer = server.chat(question(2)).text
        self.assertIn(code_word(2), answer)
        server.post('/v1/chat/completions', {'messages': secret})
        server.wait_until_durable()
        seen = [self.succeed(server, 'status'), self.succeed(server, 'status', '--json')]
        for path in ('/', '/health', '/v1/health', '/v1/models', '/metrics', '/slots', '/props',
                     '/nothing'):
            seen.append(str(call(server.port, 'GET', path)[1]))
        for path in (STATUS_PATH, '/metrics', '/', '/nothing'):
            seen.append(str(call(server.management_port, 'GET', path)[1]))
        names = []
        for folder, folders, files in os.walk(self.root):
            for name in folders + files:
                path = os.path.join(folder, name)
                mode = os.lstat(path).st_mode & 0o777
                self.assertEqual(mode, 0o700 if name in folders else 0o600, path)
                names.append(name)
        self.assertEqual(os.stat(self.root).st_mode & 0o777, 0o700)
        self.assertGreater(len(names), 3)
        seen += names
        server.stop()
        seen.append(server.log())
        for text in seen:
            for hidden in (secret, 'SECRET', code_word(2), 'code word'):
                self.assertNotIn(hidden, text)


if __name__ == '__main__':
    main()
