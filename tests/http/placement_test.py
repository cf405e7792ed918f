#!/usr/bin/env python3
"""Goal: where layers are computed is no part of a state's identity: what one placement recorded
another one restores. Method: the real server over two local RPC servers of llama.cpp, whose devices
are CPUs of this machine; the same prompts in every placement, by tokens."""

import os
import re
import socket
import subprocess

from skippy_server import ServerTest, code_word, die_with_parent, main, question, wait_for

WORKER = os.environ['SKIPPY_RPC_WORKER']
# Chosen by the size of the weights beside a device, and so another state than on the CPU.
TYPES = ('-ctk', 'f16', '-ctv', 'f16', '-fa', 'on')


class PlacementTest(ServerTest):

    def start_workers(self, count):
        endpoints = []
        for _ in range(count):
            with socket.socket() as probe:
                probe.bind(('127.0.0.1', 0))
                port = probe.getsockname()[1]
            worker = subprocess.Popen([WORKER, f'127.0.0.1:{port}'], stdin=subprocess.DEVNULL,
                                      stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
                                      preexec_fn=die_with_parent)
            self.addCleanup(worker.wait)
            self.addCleanup(worker.kill)

            def listens():
                self.assertIsNone(worker.poll(), 'the worker ended')
                with socket.socket() as attempt:
                    return attempt.connect_ex(('127.0.0.1', port)) == 0
            wait_for(listens, 'the RPC server')
            endpoints.append(f'127.0.0.1:{port}')
        return endpoints

    # Proves A9.
    def test_what_one_placement_recorded_another_restores(self):
        first, second = self.start_workers(2)
        both = f'{first},{second}'
        placements = ((('--rpc', first, '-ngl', '99'), {'RPC0'}),
                      (('--rpc', both, '-ngl', '99', '-ts', '1,1'), {'RPC0', 'RPC1'}),
                      (('--rpc', both, '-ngl', '99', '-ts', '1,3'), {'RPC0', 'RPC1'}),
                      (('--rpc', second, '-ngl', '3'), {'CPU', 'RPC0'}),
                      ((), {'CPU'}))
        identities, computed = set(), []
        for number, (placement, devices) in enumerate(placements):
            server = self.start(*TYPES, *placement, '--log-level', 'debug')
            self.assertEqual(set(re.findall(r'layer +\d+: dev = (\w+)', server.log())), devices)
            identities.add(server.state_identity())
            for seed in range(number + 1):  # those of all placements so far, and one more
                reply = server.chat(question(seed))
                computed.append((seed == number, reply.computed, reply.prompt_tokens))
                self.assertIn(code_word(seed), reply.text)
            server.wait_until_durable()
            server.stop()
        self.assertEqual(len(identities), 1)
        for is_new, tokens, prompt_tokens in computed:
            # The first words of a question are its own; the head of the template is common.
            self.assertEqual(tokens == 1, not is_new, computed)
            self.assertLessEqual(tokens, prompt_tokens)

    def test_a_server_that_does_not_answer_is_one_clear_error(self):
        with socket.socket() as probe:
            probe.bind(('127.0.0.1', 0))
            closed = f'127.0.0.1:{probe.getsockname()[1]}'
        for servers, words in ((closed, 'does not answer'), ('nowhere', 'HOST:PORT')):
            server = self.launch(self.command('--rpc', servers, root=''))
            server.process.wait()
            self.assertGreater(server.process.returncode, 0)
            line, = [line for line in server.log().splitlines() if words in line]
            self.assertIn('--rpc', line)
            self.assertIn(servers, line)


if __name__ == '__main__':
    main()
