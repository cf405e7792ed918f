#!/usr/bin/env python3
"""Goal: many clients, bad connections and other keys harm nobody. Method: the real server, with 256
streams of which half hang up, with TLS, and with isolation by key."""

import http.client
import os
import random
import socket
import ssl
import subprocess
import threading

from skippy_server import (
    ServerTest, call, chat_body, completion_body, doc, main, question, wait_for)

CHAT, COMPLETION = '/v1/chat/completions', '/v1/completions'
SEED = 256


class SafetyTest(ServerTest):

    def cached(self, server, key, **more):
        code, body = call(server.port, 'POST', CHAT, chat_body(question(1), max_tokens=1, **more),
                          {'Authorization': f'Bearer {key}'})
        self.assertEqual(code, 200, body)
        return body['usage']['prompt_tokens_details']['cached_tokens']

    @staticmethod
    def footprint(server):
        """(threads, open files besides packs, resident bytes) of the server."""
        folder = f'/proc/{server.process.pid}'
        with open(f'{folder}/statm', encoding='ascii') as file:
            resident = int(file.read().split()[1]) * os.sysconf('SC_PAGE_SIZE')
        files = 0
        for name in os.listdir(f'{folder}/fd'):
            try:
                files += '/packs/' not in os.readlink(f'{folder}/fd/{name}')
            except FileNotFoundError:  # closed meanwhile
                pass
        return len(os.listdir(f'{folder}/task')), files, resident

    def test_of_256_streams_those_that_stay_finish_and_nothing_leaks(self):
        server = self.start('-np', '8', '-c', '8192')
        _, files_before, _ = self.footprint(server)
        footprints = []
        for burst in range(3):
            self.stream_256(server, SEED + burst)
            # Connections are closed by a thread that may not have run yet.
            wait_for(lambda: self.footprint(server)[1] <= files_before, 'descriptors')
            footprints.append(self.footprint(server))
        # What the first burst brought stays for the next: threads, and the memory they used.
        first, last = footprints[0], footprints[-1]
        self.assertLessEqual(last[0], first[0] + 32, footprints)
        self.assertLessEqual(last[0], 256 + 16 + 24, footprints)
        self.assertLessEqual(last[2], first[2] + (16 << 20), footprints)
        status = server.wait_until_durable()
        self.assertEqual(status['engine']['lanes_busy'], 0)
        self.assertEqual(status['activity']['write_queue_bytes'], 0)
        # Nothing is pinned any more: everything can be removed.
        self.assertEqual(call(server.management_port, 'DELETE', '/api/runtime/kv-cache')[0], 200)
        self.assertEqual(server.status()['usage']['manifests'], 0)
        self.assertEqual(server.complete('The river', max_tokens=2).usage['completion_tokens'], 2)

    def stream_256(self, server, seed):
        rng = random.Random(seed)
        leaves = [rng.randrange(1, 6) if i % 2 else None for i in range(256)]
        results = [None] * len(leaves)

        def client(index):
            body = completion_body(doc(8, 1000 * seed + index), max_tokens=12, ignore_eos=True,
                                   stream_options={'include_usage': True})
            results[index] = server.stream(COMPLETION, body, stop_after=leaves[index])
        threads = [threading.Thread(target=client, args=(i,)) for i in range(len(leaves))]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        for index, stay in enumerate(leaves):
            if stay is None:
                self.assertTrue(results[index].done, (index, seed))
                self.assertEqual(results[index].usage['completion_tokens'], 12)
        server.wait_until_idle()

    def test_300_half_open_connections_leave_room_for_others(self):
        server = self.start_cold()
        half_open = []
        for _ in range(300):
            client = socket.create_connection(('127.0.0.1', server.port))
            self.addCleanup(client.close)
            client.sendall(b'POST /v1/completions HTTP/1.1\r\nHost: x\r\nX-Long: ')
            half_open.append(client)
        # All threads are taken; those that do not go on give theirs away.
        self.assertEqual(server.complete('The river', max_tokens=2).usage['completion_tokens'], 2)
        self.assertEqual(call(server.port, 'GET', '/health')[0], 200)

    def test_tls_with_a_certificate(self):
        certificate, key = (os.path.join(self.work, name) for name in ('c.pem', 'k.pem'))
        subprocess.run(['openssl', 'req', '-x509', '-newkey', 'rsa:2048', '-nodes', '-days', '1',
                        '-subj', '/CN=localhost', '-addext', 'subjectAltName=IP:127.0.0.1',
                        '-keyout', key, '-out', certificate], check=True, capture_output=True)
        server = self.launch(self.command('--ssl-cert-file', certificate, '--ssl-key-file', key,
                                          root=''))
        server.port, server.management_port = server.wait_alive(server._ports, 'the ports')
        context = ssl.create_default_context(cafile=certificate)

        def get(path):
            connection = http.client.HTTPSConnection('127.0.0.1', server.port, context=context)
            connection.request('GET', path)
            return connection.getresponse().status
        wait_for(lambda: get('/health') == 200, 'health over TLS')
        self.assertEqual(get('/v1/models'), 200)
        self.assertIn('https://', server.log())
        with self.assertRaises((http.client.HTTPException, OSError)):
            call(server.port, 'GET', '/health')
        server.stop()
        for options in (('--ssl-cert-file', certificate),
                        ('--ssl-cert-file', key, '--ssl-key-file', key)):
            process = subprocess.run(self.command(*options, root=''), capture_output=True,
                                     text=True, check=False)
            self.assertNotEqual(process.returncode, 0)
            self.assertIn('--ssl-cert-file', process.stderr)

    def test_keys_share_nothing_only_when_the_server_is_told_so(self):
        for options, shared in (((), True), (('--cache-isolation', 'key'), False)):
            root = os.path.join(self.work, f'cache-{shared}')
            keys = ('--api-key', 'one,two', *options)
            server = self.start(*keys, root=root)
            self.assertEqual(self.cached(server, 'one'), 0)
            full = self.cached(server, 'one')
            self.assertGreater(full, 0)
            self.assertEqual(self.cached(server, 'two'), full if shared else 0)
            self.assertEqual(self.cached(server, 'two'), full)
            self.assertEqual(self.cached(server, 'two', prompt_cache_key='k'), full)
            server.wait_until_durable()
            server.kill9()
            server = self.start(*keys, root=root)
            self.assertEqual(self.cached(server, 'one'), full)
            self.assertEqual(self.cached(server, 'one', cache_salt='s'), 0)
            server.stop()

    def test_a_prewarmed_prompt_is_found_and_in_memory_stays_off_the_disk(self):
        server = self.start()
        warm = server.complete(doc(100, 1), max_tokens=0)
        self.assertEqual((warm.text, warm.usage['completion_tokens']), ('', 0))
        self.assertEqual(server.complete(doc(100, 1), max_tokens=1).cached, warm.prompt_tokens - 1)
        server.complete(doc(100, 2), max_tokens=1, prompt_cache_retention='in_memory')
        server.complete(doc(100, 3), max_tokens=1, prompt_cache_retention='24h')
        reply = server.post(COMPLETION, completion_body('x', prompt_cache_retention='for ever'))
        self.assertEqual(reply.body['error']['param'], 'prompt_cache_retention')
        server.wait_until_durable()
        server.kill9()
        server = self.start()
        for seed, kept in ((1, True), (2, False), (3, True)):
            reply = server.complete(doc(100, seed), max_tokens=1)
            if kept:
                self.assertEqual(reply.cached, reply.prompt_tokens - 1, seed)
            else:
                self.assertLess(reply.cached, 10, seed)

    def test_what_is_to_be_kept_outlasts_what_is_not(self):
        server = self.start('-c', '512', budget='12MiB')
        fields = ({}, {'prompt_cache_retention': '24h'}, {'prompt_cache_key': 'project'})
        prompts = [doc(150, 900 + i) for i in range(len(fields))]
        for prompt, more in zip(prompts, fields):
            server.complete(prompt, max_tokens=1, **more)
        for seed in range(40):
            server.complete(doc(150, seed), max_tokens=1)
            if server.wait_until_durable()['activity']['evictions'] > 20:
                break
        server.stop()
        server = self.start('-c', '512', budget='12MiB')
        cached = [server.complete(prompt, max_tokens=1) for prompt in prompts]
        self.assertLess(cached[0].cached, 32)
        for reply in cached[1:]:
            self.assertEqual(reply.cached, reply.prompt_tokens - 1)


if __name__ == '__main__':
    main()
