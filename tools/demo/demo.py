#!/usr/bin/env python3
"""A conversation that survives kill -9.

Starts the real server with an empty cache root, asks one question at the end of a conversation
over a document of about 4,000 tokens, asks it again, kills the server with SIGKILL, starts it on
the same root and asks a third time. One table shows what was computed each time.

Exit status 0: the answer after the restart equals the warm one bit for bit (text and
probabilities), and at most 1 % of the prompt was computed again. Status 1: it was not so, or the
server failed.
"""

import argparse
import ctypes
import dataclasses
import http.client
import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time

import document

REPOSITORY = os.path.normpath(os.path.join(os.path.dirname(os.path.abspath(__file__)), '..', '..'))
CODE_WORD = 'K7QZ-9931'
FACT = f'The code word for harbor is {CODE_WORD}.'
QUESTION = 'What is the code word for harbor?'
RECOMPUTED_MAX = 0.01  # part of the prompt that may be computed again after the restart
START_TIMEOUT_S, DURABLE_TIMEOUT_S, REQUEST_TIMEOUT_S = 30, 30, 120


class DemoError(Exception):
    """What the demo could not do, in one line."""


@dataclasses.dataclass
class Answer:
    text: str
    logprobs: list
    prompt_tokens: int
    cached_tokens: int
    first_token_ms: float
    tokens_per_second: float

    @property
    def computed_tokens(self):
        return self.prompt_tokens - self.cached_tokens

    def same_bits(self, other):
        return self.text == other.text and self.logprobs == other.logprobs


class Server:
    """One run of the real binary. The child dies with this process, however that ends."""

    def __init__(self, options, root, log_path):
        self.port, self.management_port = free_ports(2)
        self.log_path = log_path
        command = [options.binary, 'serve', '-m', options.model, '-c', '8192', '-np', '1',
                   '-t', str(options.threads), '--port', str(self.port),
                   '--management-port', str(self.management_port),
                   '--kv-cache-disk', '128MiB', '--kv-cache-disk-dir', root,
                   '--kv-cache-min-free', '1GiB']
        with open(log_path, 'ab') as log:
            self.process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=log,
                                            stderr=log, preexec_fn=die_with_parent)

    def wait_until_ready(self):
        """Until it serves, and knows the digest of the weights: the disk tier waits for that."""
        def ready():
            if self.get(self.port, '/health') is None:
                return False
            status = self.status()
            return (status['effective']['state'] == 'active'
                    and status['engine']['model']['model_identity'] is not None)
        self.wait_for(ready, START_TIMEOUT_S, 'the server did not become ready')

    def wait_until_durable(self):
        """Until everything recorded so far is on disk."""
        def durable():
            status = self.status()
            return (status['activity']['write_queue_bytes'] == 0
                    and status['usage']['manifests'] > 0)
        self.wait_for(durable, DURABLE_TIMEOUT_S, 'the state did not become durable')

    def wait_for(self, condition, timeout_s, complaint):
        deadline = time.monotonic() + timeout_s
        while not self.try_condition(condition):
            if self.process.poll() is not None:
                raise DemoError(f'the server ended with status {self.process.returncode}')
            if time.monotonic() > deadline:
                raise DemoError(f'{complaint} within {timeout_s} s')
            time.sleep(0.02)

    @staticmethod
    def try_condition(condition):
        try:
            return condition()
        except (OSError, http.client.HTTPException):
            return False  # not listening yet

    def get(self, port, path):
        """The JSON of a 200, else None."""
        connection = http.client.HTTPConnection('127.0.0.1', port, timeout=REQUEST_TIMEOUT_S)
        try:
            connection.request('GET', path)
            response = connection.getresponse()
            body = response.read()
            return json.loads(body) if response.status == 200 else None
        finally:
            connection.close()

    def status(self):
        status = self.get(self.management_port, '/api/runtime/kv-cache')
        if status is None:
            raise http.client.HTTPException('no status yet')
        return status

    def ask(self, messages):
        connection = http.client.HTTPConnection('127.0.0.1', self.port, timeout=REQUEST_TIMEOUT_S)
        body = {'messages': messages, 'temperature': 0, 'max_tokens': 24, 'stream': True,
                'logprobs': True, 'stream_options': {'include_usage': True}}
        try:
            start = time.monotonic()
            connection.request('POST', '/v1/chat/completions', json.dumps(body),
                               {'Content-Type': 'application/json'})
            return read_answer(connection.getresponse(), start)
        finally:
            connection.close()

    def kill(self):
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGKILL)
        self.process.wait()


def die_with_parent():
    pr_set_pdeathsig = 1
    ctypes.CDLL(None).prctl(pr_set_pdeathsig, signal.SIGKILL)


def free_ports(count):
    sockets = [socket.socket() for _ in range(count)]
    for each in sockets:
        each.bind(('127.0.0.1', 0))
    ports = [each.getsockname()[1] for each in sockets]
    for each in sockets:
        each.close()
    return ports


def read_answer(response, start):
    if response.status != 200:
        raise DemoError(f'HTTP {response.status}: {response.read().decode(errors="replace")[:300]}')
    text, logprobs, arrivals, usage = '', [], [], None
    for line in response:
        if not line.startswith(b'data: ') or line.strip() == b'data: [DONE]':
            continue
        chunk = json.loads(line[len(b'data: '):])
        usage = chunk.get('usage') or usage
        for choice in chunk.get('choices', ()):
            content = choice['delta'].get('content')
            if content:
                text += content
                arrivals.append(time.monotonic())
            for token in (choice.get('logprobs') or {}).get('content') or ():
                logprobs.append((token['token'], token['logprob']))
    if usage is None or not arrivals or not logprobs:
        raise DemoError('the reply had no text, no probabilities or no usage')
    span = arrivals[-1] - arrivals[0]
    return Answer(text=text, logprobs=logprobs, prompt_tokens=usage['prompt_tokens'],
                  cached_tokens=usage['prompt_tokens_details']['cached_tokens'],
                  first_token_ms=(arrivals[0] - start) * 1000,
                  tokens_per_second=(len(arrivals) - 1) / span if span > 0 else float('inf'))


def conversation():
    """Several turns over a document; the fact stands a few hundred tokens before the question."""
    messages = [{'role': 'system', 'content': 'You answer from the document.'}]
    for part, (sentence_count, seed) in enumerate(((42, 1), (42, 2), (36, 3)), 1):
        messages += [
            {'role': 'user', 'content': f'Part {part}.\n\n{document.text(sentence_count, seed)}'},
            {'role': 'assistant', 'content': 'I have read this part.'}]
    messages.append({'role': 'user', 'content': '\n\n'.join((
        document.text(6, 4), FACT, document.text(6, 5), QUESTION))})
    return messages


class Progress:
    """One line that tells what is going on; overwritten in place on a terminal."""

    def __init__(self):
        self.in_place = sys.stderr.isatty()

    def show(self, what):
        end = '' if self.in_place else '\n'
        print(('\r\033[K' if self.in_place else '') + f'demo: {what}', end=end, file=sys.stderr,
              flush=True)

    def clear(self):
        if self.in_place:
            print('\r\033[K', end='', file=sys.stderr, flush=True)


def disk_bytes(root):
    """Physical bytes of everything below the root."""
    return sum(os.lstat(os.path.join(folder, name)).st_blocks * 512
               for folder, _, names in os.walk(root) for name in names)


def yes_no(value):
    return 'yes' if value else 'no'


def run(options, work, progress):
    """[(row name, answer, bytes on disk, is identical or None)]"""
    root, log_path = os.path.join(work, 'cache'), os.path.join(work, 'server.log')
    messages, server = conversation(), None

    def ask(what):
        progress.show(what)
        answer = server.ask(messages)
        server.wait_until_durable()
        return answer, disk_bytes(root)

    try:
        progress.show('starting the server on an empty cache root')
        server = Server(options, root, log_path)
        server.wait_until_ready()
        cold, cold_bytes = ask('asking: nothing is cached, the whole prompt is computed')
        warm, warm_bytes = ask('asking again: the state is still in the engine')
        progress.show('kill -9, and a new server on the same cache root')
        server.kill()
        server = Server(options, root, log_path)
        server.wait_until_ready()
        restored, restored_bytes = ask('asking the new server: the state comes from disk')
    finally:
        if server is not None:
            server.kill()
        progress.clear()
    return [('cold', cold, cold_bytes, None), ('warm (L1)', warm, warm_bytes, None),
            ('after restart (L3)', restored, restored_bytes, restored.same_bits(warm))]


def print_table(rows):
    head = ('', 'prompt tokens', 'tokens computed', 'first token', 'tokens/s', 'bytes on disk',
            'identical to warm', 'code word found')
    lines = [head] + [
        (name, f'{answer.prompt_tokens:,}', f'{answer.computed_tokens:,}',
         f'{answer.first_token_ms:,.1f} ms', f'{answer.tokens_per_second:,.0f}', f'{on_disk:,}',
         '' if identical is None else yes_no(identical), yes_no(CODE_WORD in answer.text))
        for name, answer, on_disk, identical in rows]
    widths = [max(len(line[column]) for line in lines) for column in range(len(head))]
    for line in lines:
        cells = [line[0].ljust(widths[0])]
        cells += [cell.rjust(width) for cell, width in zip(line[1:], widths[1:])]
        print('  '.join(cells).rstrip())


def verdict(rows):
    """Complaints, none when all is well."""
    (_, _, _, _), (_, warm, _, _), (_, restored, _, identical) = rows
    if not identical:
        yield 'the answer after the restart is not the warm one'
        yield f'  warm:     {warm.text!r}'
        yield f'  restored: {restored.text!r}'
        if restored.text == warm.text:
            yield '  the text is the same, the probabilities are not'
    if restored.computed_tokens > RECOMPUTED_MAX * restored.prompt_tokens:
        yield f'{restored.computed_tokens} tokens were computed again after the restart'
    if CODE_WORD not in restored.text:
        yield f'the code word {CODE_WORD} is not in the answer: {restored.text!r}'


def parse_arguments():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument('--binary', default=os.path.join(REPOSITORY, 'build/release/bin/skippy'))
    parser.add_argument('--model', default=os.path.join(REPOSITORY, 'models/skippy-demo-f16.gguf'))
    parser.add_argument('--threads', type=int, default=min(os.cpu_count() or 1, 4),
                        help='the same for every run, since it decides how sums are split')
    parser.add_argument('--show', action='store_true', help='also print the answer')
    return parser.parse_args()


def print_server_log(work):
    try:
        with open(os.path.join(work, 'server.log'), encoding='utf-8', errors='replace') as log:
            print(''.join(log.readlines()[-20:]), end='', file=sys.stderr)
    except OSError as error:
        print(f'demo: no server log: {error}', file=sys.stderr)


def main():
    options = parse_arguments()
    for path in (options.binary, options.model):
        if not os.path.isfile(path):
            print(f'demo: {path} does not exist', file=sys.stderr)
            return 1
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))
    work = tempfile.mkdtemp(prefix='demo-', dir=os.path.dirname(os.path.abspath(options.binary)))
    try:
        rows = run(options, work, Progress())
    except (DemoError, OSError, KeyError, ValueError, http.client.HTTPException) as error:
        print_server_log(work)
        print(f'demo: failed: {error}', file=sys.stderr)
        return 1
    finally:
        shutil.rmtree(work, ignore_errors=True)
    print_table(rows)
    if options.show:
        print(f'\n{QUESTION}\n{rows[-1][1].text}')
    complaints = list(verdict(rows))
    for complaint in complaints:
        print(f'demo: {complaint}', file=sys.stderr)
    return 1 if complaints else 0


if __name__ == '__main__':
    sys.exit(main())
