"""The real server as a child process, and a small client for it.

Goal: each black-box test drives the binary that users run. Method: the server picks free ports
and tells them in its log; what is waited for is a condition; the child dies with the test. Tests
assert tokens computed and counters, never time. SKIPPY_BINARY and SKIPPY_MODELS say what is used.
"""

import ctypes
import dataclasses
import http.client
import json
import os
import random
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
import unittest

REPOSITORY = os.path.normpath(os.path.join(os.path.dirname(os.path.abspath(__file__)), '..', '..'))
BINARY = os.environ.get('SKIPPY_BINARY', os.path.join(REPOSITORY, 'build/release/bin/skippy'))
MODELS = os.environ.get('SKIPPY_MODELS', os.path.join(REPOSITORY, 'models'))
MODEL = os.path.join(MODELS, 'skippy-demo-f16.gguf')
MODEL_Q8 = os.path.join(MODELS, 'skippy-demo-q8_0.gguf')
STATUS_PATH = '/api/runtime/kv-cache'
WAIT_S = 120  # how long a condition may take on a busy machine before it counts as never
POLL_S = 0.01
WORDS = ('river stone paper market window garden silver engine letter harbour winter basket copper '
         'ladder meadow signal thunder velvet walnut yellow').split()
# Keys and values whose row hashes do not depend on the cells they lie in, on the CPU.
PLACEMENT_FREE = ('-ctk', 'q8_0', '-ctv', 'q8_0', '-fa', 'on')


def doc(word_count, seed, needle=None):
    """Filler that differs from another seed's within its first words. A needle goes to its end."""
    rng = random.Random(seed)
    words = [f'Text {seed} begins.'] + [rng.choice(WORDS) for _ in range(word_count)]
    text = ' '.join(words) + '.'
    return text if needle is None else f'{text}\n\nThe code word for harbor is {needle}.'


def code_word(seed):
    rng = random.Random(1000 + seed)
    letters = ''.join(rng.choice('BCDFGHJKLMNPQRSTVWXZ') for _ in range(4))
    return f'{letters[0]}{rng.randrange(10)}{letters[1:3]}-{rng.randrange(1000, 10000)}'


def question(seed, word_count=150):
    """Messages whose answer is code_word(seed)."""
    return [{'role': 'user', 'content': doc(word_count, seed, code_word(seed)) +
             '\n\nWhat is the code word for harbor?'}]


def wait_for(condition, what):
    """The condition's first true value."""
    deadline = time.monotonic() + WAIT_S
    while True:
        value = condition()
        if value:
            return value
        if time.monotonic() > deadline:
            raise AssertionError(f'waited {WAIT_S} s in vain: {what}')
        time.sleep(POLL_S)


@dataclasses.dataclass
class Reply:
    """One answer. Every number is the server's own."""
    status: int
    body: dict

    @property
    def usage(self):
        return self.body['usage']

    @property
    def prompt_tokens(self):
        return self.usage['prompt_tokens']

    @property
    def cached(self):
        return self.usage['prompt_tokens_details']['cached_tokens']

    @property
    def computed(self):
        return self.prompt_tokens - self.cached

    @property
    def text(self):
        choice = self.body['choices'][0]
        return choice['message']['content'] if 'message' in choice else choice['text']

    @property
    def logprobs(self):
        logprobs = self.body['choices'][0]['logprobs']
        return logprobs['content'] if 'content' in logprobs else logprobs['token_logprobs']


@dataclasses.dataclass
class Stream:
    """The events of a streamed answer."""
    chunks: list
    done: bool

    @property
    def text(self):
        return ''.join((c['delta'].get('content') or '') if 'delta' in c else c['text']
                       for chunk in self.chunks for c in chunk['choices'])

    @property
    def usage(self):
        return next((c['usage'] for c in reversed(self.chunks) if c.get('usage')), None)

    @property
    def cached(self):
        return self.usage['prompt_tokens_details']['cached_tokens']


class Connection:
    """One HTTP exchange with a port of this machine."""

    def __init__(self, port, method, path, body=None, headers=None):
        self.http = http.client.HTTPConnection('127.0.0.1', port, timeout=WAIT_S)
        data = body if isinstance(body, (bytes, type(None))) else json.dumps(body).encode()
        sent = {'Content-Type': 'application/json'} if data is not None else {}
        self.http.request(method, path, data, {**sent, **(headers or {})})

    def response(self):
        return self.http.getresponse()

    def close(self):
        self.http.close()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()


def call(port, method, path, body=None, headers=None):
    """-> (HTTP status, JSON or text)"""
    with Connection(port, method, path, body, headers) as connection:
        response = connection.response()
        data = response.read().decode('utf-8', 'strict')
    try:
        return response.status, json.loads(data)
    except ValueError:
        return response.status, data


def die_with_parent():
    pr_set_pdeathsig = 1
    ctypes.CDLL(None).prctl(pr_set_pdeathsig, signal.SIGKILL)


class Server:
    """One run of `skippy serve`."""

    def __init__(self, command, log_path, environment=None, before_exec=None):
        self.log_path = log_path
        self.port = self.management_port = None

        def prepare():
            die_with_parent()
            if before_exec:
                before_exec()
        with open(log_path, 'wb') as log:
            self.process = subprocess.Popen(
                command, stdin=subprocess.DEVNULL, stdout=log, stderr=log, preexec_fn=prepare,
                env={**os.environ, **(environment or {})})

    def log(self):
        with open(self.log_path, encoding='utf-8', errors='replace') as file:
            return file.read()

    def wait_until_ready(self):
        self.port, self.management_port = self.wait_alive(self._ports, 'the ports')
        self.wait_alive(self._is_ready, 'readiness')
        return self

    def _ports(self):
        log = self.log()
        api = re.search(r'listening on https?://[^ \n]*:(\d+)\n', log)
        management = re.search(r'management API on http://[^ \n]*:(\d+)\n', log)
        return (int(api.group(1)), int(management.group(1))) if api and management else None

    def _is_ready(self):
        """Serving, and the digest of the weights known: the disk tier waits for that."""
        if call(self.port, 'GET', '/health')[0] != 200:
            return False
        status = self.status()
        model = status['engine']['model']
        return (status['effective']['state'] in ('off', 'degraded')
                or bool(model['state_identity'] or model['cache_reason']))

    def wait_alive(self, condition, what):
        def value_or_dead():
            return condition() or self.process.poll() is not None
        value = wait_for(value_or_dead, f'{what} of the server; its log:\n{self.log()}')
        if value is True and self.process.poll() is not None:
            raise AssertionError(f'the server ended with status {self.process.returncode} before '
                                 f'{what}:\n{self.log()}')
        return value

    def status(self):
        code, body = call(self.management_port, 'GET', STATUS_PATH)
        assert code == 200, (code, body)
        return body

    def engine(self):
        return self.status()['engine']

    def state_identity(self):
        return self.engine()['model']['state_identity']

    def metrics(self):
        code, body = call(self.management_port, 'GET', '/metrics')
        assert code == 200, (code, body)
        return body

    def wait_until_durable(self):
        """Until all that was recorded so far can be found after a kill."""
        def durable():
            status = self.status()
            shown = len(status['inventory']) + status['inventory_omitted']
            return (status['activity']['write_queue_bytes'] == 0
                    and shown == status['usage']['manifests']) and status
        return self.wait_alive(durable, 'durable state')

    def wait_until_idle(self):
        return self.wait_alive(lambda: self.engine()['lanes_busy'] == 0
                               and self.engine()['queued'] == 0, 'an idle engine')

    def post(self, path, body):
        return Reply(*call(self.port, 'POST', path, body))

    def ask(self, path, body):
        """A reply that must be good."""
        reply = self.post(path, body)
        assert reply.status == 200, (reply.status, reply.body)
        return reply

    def chat(self, messages, **more):
        return self.ask('/v1/chat/completions', chat_body(messages, **more))

    def complete(self, prompt, **more):
        return self.ask('/v1/completions', completion_body(prompt, **more))

    def open(self, path, body):
        """A request whose answer is not waited for; closing it hangs up."""
        return Connection(self.port, 'POST', path, body)

    def stream(self, path, body, stop_after=None):
        """Hangs up after `stop_after` events."""
        chunks, done = [], False
        with self.open(path, {**body, 'stream': True}) as connection:
            response = connection.response()
            assert response.status == 200, (response.status, response.read())
            for line in response:
                if line.strip() == b'data: [DONE]':
                    done = True
                elif line.startswith(b'data: '):
                    chunks.append(json.loads(line[len(b'data: '):]))
                if stop_after and len(chunks) >= stop_after:
                    break
        return Stream(chunks, done)

    def tokenize(self, text):
        code, body = call(self.port, 'POST', '/tokenize', {'content': text})
        assert code == 200, (code, body)
        return body['tokens']

    def stop(self):
        """An orderly end, which must succeed."""
        self.process.send_signal(signal.SIGTERM)
        wait_for(lambda: self.process.poll() is not None, 'the end after SIGTERM')
        assert self.process.returncode == 0, (self.process.returncode, self.log())

    def kill9(self):
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGKILL)
        self.process.wait()


def chat_body(messages, **more):
    return {'messages': messages, 'temperature': 0, 'max_tokens': 16, **more}


def completion_body(prompt, **more):
    return {'prompt': prompt, 'temperature': 0, 'max_tokens': 16, **more}


def root_bytes(root):
    """(allocated, apparent) bytes of the files below a root; links are not followed."""
    allocated = apparent = 0
    for folder, _, names in os.walk(root):
        for name in names:
            try:
                info = os.lstat(os.path.join(folder, name))
            except FileNotFoundError:
                continue  # deleted meanwhile
            allocated += info.st_blocks * 512
            apparent += info.st_size
    return allocated, apparent


class RootSampler:
    """The largest size that a root was seen with, sampled 50 times a second."""

    def __init__(self, root):
        self.root = root
        self.allocated_max = self.apparent_max = self.samples = 0
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)

    def _run(self):
        while True:
            allocated, apparent = root_bytes(self.root)
            self.allocated_max = max(self.allocated_max, allocated)
            self.apparent_max = max(self.apparent_max, apparent)
            self.samples += 1
            if self._ended.wait(0.02):
                return

    def __enter__(self):
        self._thread.start()
        return self

    def __exit__(self, *_):
        self._ended.set()
        self._thread.join()


def run_threads(function, arguments):
    """function(argument) for all at once; their results in order. The first error is raised."""
    results, errors = [None] * len(arguments), []
    start = threading.Barrier(len(arguments))

    def run(index):
        try:
            start.wait()
            results[index] = function(arguments[index])
        except BaseException as error:  # raised again below
            errors.append(error)
    threads = [threading.Thread(target=run, args=(i,)) for i in range(len(arguments))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if errors:
        raise errors[0]
    return results


class ServerTest(unittest.TestCase):
    """A folder per test, and servers that end with it."""

    options = ('-c', '4096', '-np', '1', '-t', '2')
    budget = '64MiB'

    def setUp(self):
        self.work = os.path.realpath(tempfile.mkdtemp(prefix='skippy-test-'))
        self.addCleanup(shutil.rmtree, self.work, ignore_errors=True)
        self.root = os.path.join(self.work, 'cache')
        self.servers = []
        self.addCleanup(self._end_servers)

    def _end_servers(self):
        for server in self.servers:
            server.kill9()
        result = self._outcome.result
        if any(test is self for test, _ in result.failures + result.errors):
            for number, server in enumerate(self.servers[-3:]):
                print(f'--- end of server log {number}\n{server.log()[-3000:]}', file=sys.stderr)

    def command(self, *options, root=None, budget=None, model=MODEL):
        """`root` "": no disk tier."""
        # The RAM tier answers before the disk: off unless a test is about it.
        command = [BINARY, 'serve', '-m', model, '--port', '0', '--management-port', '0',
                   '--cache-ram', '0', *self.options]
        if root != '':
            command += ['--kv-cache-disk', budget or self.budget, '--kv-cache-disk-dir',
                        root or self.root, '--kv-cache-min-free', '1GiB']
        return command + list(options)

    def launch(self, command, environment=None, before_exec=None):
        log_path = os.path.join(self.work, f'server-{len(self.servers)}.log')
        environment = {'SKIPPY_HOME': os.path.join(self.work, 'home'), **(environment or {})}
        server = Server(command, log_path, environment, before_exec)
        self.servers.append(server)
        return server

    def start(self, *options, root=None, budget=None, model=MODEL):
        return self.launch(self.command(*options, root=root, budget=budget,
                                        model=model)).wait_until_ready()

    def start_cold(self, *options, model=MODEL):
        """A server that never had a disk tier."""
        return self.start(*options, root='', model=model)

    def pack_files(self):
        packs = os.path.join(self.root, 'packs')
        return sorted(os.path.join(packs, name) for name in os.listdir(packs))

    def assert_within_budget(self, sampler, budget_bytes):
        self.assertGreater(sampler.samples, 5)
        self.assertLessEqual(sampler.allocated_max, budget_bytes)
        self.assertLessEqual(sampler.apparent_max, budget_bytes)


def main():
    for path in (BINARY, MODEL, MODEL_Q8):
        if not os.path.isfile(path):
            sys.exit(f'{path} does not exist')
    unittest.main(verbosity=1)
