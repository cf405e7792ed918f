#!/usr/bin/env python3
"""Goal: what cannot be served fails with one clear line; what can be served without the disk tier
is served cold, and status says why. Method: start the real binary in every bad situation."""

import ctypes
import os
import pwd
import shutil
import signal
import socket
import subprocess

from skippy_server import (
    BINARY, MODEL, WAIT_S, ServerTest, code_word, die_with_parent, main, question)

MS_RDONLY, MS_REMOUNT, MS_BIND, MS_REC, MS_PRIVATE = 1, 32, 4096, 16384, 1 << 18
CLONE_NEWNS = 0x00020000


def is_root():
    return os.geteuid() == 0


class StartErrorsTest(ServerTest):

    def run_to_end(self, command, environment=None):
        """-> (exit status, standard error) of a command that must end by itself."""
        done = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, text=True,
                              timeout=WAIT_S, preexec_fn=die_with_parent, check=False,
                              env={**os.environ, **(environment or {})})
        return done.returncode, done.stderr

    def assert_refused(self, command, *words, environment=None):
        """Ends with an error status, and with one line of the error that has all the words."""
        code, error = self.run_to_end(command, environment)
        self.assertGreater(code, 0, error)
        lines = [line for line in error.splitlines() if all(word in line for word in words)]
        self.assertEqual(len(lines), 1, error)
        return error

    # Proves P2 and J6.
    def test_bad_flags_end_with_one_line_that_names_them(self):
        for options, word in ((('--no-such-flag',), '--no-such-flag'), (('-c', 'many'), 'many'),
                              (('-fa', 'maybe'), 'maybe'), (('-ctk', 'q9'), 'q9'),
                              (('--port', '70000'), '70000'), (('-b', '0'), '0'),
                              (('--kv-cache-disk-dir', 'relative'), 'relative'),
                              (('--kv-cache-min-free', '512MiB'), '512MiB'),
                              (('--management-host', '0.0.0.0'), '0.0.0.0')):
            error = self.assert_refused(self.command(*options, root=''), word)
            self.assertEqual(len(error.strip().splitlines()), 1, error)
        self.assert_refused([BINARY, 'serve'], '--model')

    # Proves O4.
    def test_cache_types_and_placements_that_cannot_work_are_refused_with_the_reason(self):
        for options, words in (
                (('-ctv', 'q8_0', '-fa', 'off'), ('--cache-type-v q8_0', 'needs flash attention')),
                (('-ts', '0,0'), ('--tensor-split', 'not all 0')),
                (('-ts', '1,-1'), ('--tensor-split', 'none negative')),
                (('-sm', 'diagonal'), ('--split-mode', 'diagonal'))):
            self.assert_refused(self.command(*options, root=''), *words)

    # Proves J5. Case M1.
    def test_a_size_is_exact_or_refused(self):
        bad = ('10GB', '10 GiB', '10gib', '10G', '10g', '1.5GiB', '10485760', '0', '0MiB', '-1', '',
               ' ', '10XB', '10GiBB', '0x10', '1e3', '99999999999999999999', '20000000TiB',
               '10٠GiB')
        for size in bad:
            error = self.assert_refused(
                self.command('--kv-cache-disk=' + size, root=''), '--kv-cache-disk',
                f'"{size}"' if size and size.isascii() else '')
            self.assertEqual(len(error.strip().splitlines()), 1, error)
        for size in ('10GB', '0', '1.5GiB'):
            self.assert_refused(self.command(root=''), 'SKIPPY_KV_CACHE_DISK', f'"{size}"',
                                environment={'SKIPPY_KV_CACHE_DISK': size})
        server = self.start(budget='10GiB')
        status = server.status()
        self.assertEqual(status['configured']['budget_bytes'], 10 << 30)
        self.assertEqual(status['usage']['budget_bytes'], 10 << 30)
        self.assertEqual(status['configured']['minimum_free_bytes'], 1 << 30)
        self.assertEqual(status['configured']['sources']['budget'], 'cli')

    def test_a_model_that_cannot_be_read_is_named(self):
        path = os.path.join(self.work, 'model.gguf')

        def write(data):
            with open(path, 'wb') as file:
                file.write(data)
        with open(MODEL, 'rb') as file:
            good = file.read()
        self.assert_refused(self.command(root='', model=path), 'skippy: ', path)
        self.assert_refused(self.command(root='', model=self.work), 'skippy: ', self.work)
        for data in (b'', b'GGUF', os.urandom(100000), good[:1000], good[:len(good) // 2]):
            write(data)
            self.assert_refused(self.command(root='', model=path), 'skippy: ', path)

    def test_a_port_in_use_is_named_and_nothing_is_served(self):
        with socket.socket() as taken:
            taken.bind(('127.0.0.1', 0))
            taken.listen()
            port = str(taken.getsockname()[1])
            for flag in ('--port', '--management-port'):
                command = self.command(root='')
                command[command.index(flag) + 1] = port
                self.assert_refused(command, 'skippy: ', flag, port)

    def assert_serves_cold(self, server, *words):
        """Serving, the tier degraded with these words in status, and a warm L1 nevertheless."""
        effective = server.status()['effective']
        self.assertEqual(effective['state'], 'degraded')
        text = f'{effective["reason"]}: {effective["detail"]}'
        for word in words:
            self.assertIn(word, text)
        for cached in (0, None):
            reply = server.chat(question(1))
            self.assertEqual(reply.cached, reply.prompt_tokens - 1 if cached is None else cached)
            self.assertIn(code_word(1), reply.text)
        self.assertTrue(any('degraded' in line for line in server.log().splitlines()))
        server.stop()

    # Proves P2, J19, N2, N16 and D7. Case M3.
    def test_a_root_that_cannot_be_had_is_served_cold_with_the_reason_in_status(self):
        file = os.path.join(self.work, 'file')
        with open(file, 'w', encoding='utf-8') as out:
            out.write('not a directory')
        busy = os.path.join(self.work, 'busy')
        os.mkdir(busy, 0o755)
        with open(os.path.join(busy, 'mine'), 'w', encoding='utf-8') as out:
            out.write('of somebody')
        os.mkdir(os.path.join(self.work, 'real'), 0o700)
        link = os.path.join(self.work, 'link')
        os.symlink(os.path.join(self.work, 'real'), link)
        dangling = os.path.join(self.work, 'dangling')
        os.symlink(os.path.join(self.work, 'nowhere'), dangling)
        for root, words in ((file, ('not a directory', file)),
                            (os.path.join(file, 'below'), ('not a directory',)),
                            (busy, ('not empty', busy)), (link, ('symbolic link', link)),
                            (dangling, ('symbolic link', dangling))):
            self.assert_serves_cold(self.start(root=root), 'storage_unavailable', *words)
        self.assert_serves_cold(self.start(budget='1MiB'), 'budget_below_entry_floor')
        self.assertEqual(os.listdir(busy), ['mine'])
        self.assertEqual(os.stat(busy).st_mode & 0o777, 0o755)
        self.assertFalse(os.path.lexists(os.path.join(self.work, 'nowhere')))

    # Proves D6. Case M3: a missing parent is made.
    def test_missing_parents_of_the_root_are_created_private(self):
        root = os.path.join(self.work, 'a', 'b', 'c')
        server = self.start(root=root)
        self.assertEqual(server.status()['effective']['state'], 'active')
        self.assertEqual(os.stat(root).st_mode & 0o777, 0o700)

    # Proves D3.
    def test_a_root_that_another_server_owns_is_served_cold_and_its_own_later(self):
        first = self.start()
        first.chat(question(1))
        first.wait_until_durable()
        self.assert_serves_cold(self.start(), 'owned by another')
        first.kill9()
        reply = self.start().chat(question(1))
        self.assertEqual(reply.cached, reply.prompt_tokens - 1)

    # Proves P1 and D11. Case M3: somebody else's root, and a file system that became read-only.
    def test_a_root_without_permission_is_served_cold(self):
        os.mkdir(self.root, 0o700)
        before_exec = None
        if is_root():
            user = pwd.getpwnam('nobody')
            os.chmod(self.work, 0o755)

            def before_exec():
                os.setgroups([])
                os.setgid(user.pw_gid)
                os.setuid(user.pw_uid)
                die_with_parent()  # a change of user forgets it
        else:
            os.chmod(self.root, 0)
        command = self.command(model=self.readable_copy(MODEL))
        command[0] = self.readable_copy(BINARY)
        server = self.launch(command, before_exec=before_exec)
        try:
            self.assert_serves_cold(server.wait_until_ready(), 'storage_unavailable', self.root)
        finally:
            os.chmod(self.root, 0o700)

    def readable_copy(self, path):
        copy = os.path.join(self.work, os.path.basename(path))
        shutil.copy(path, copy)
        os.chmod(copy, 0o755)
        return copy

    # Proves P2. Case M3.
    def test_a_root_on_a_read_only_file_system_is_served_cold(self):
        if not is_root():
            # Without the right to mount, a directory nobody may write is the same error.
            os.mkdir(self.root, 0o500)
            self.addCleanup(os.chmod, self.root, 0o700)
            server = self.launch(self.command())
        else:
            os.mkdir(self.root, 0o700)
            server = self.launch(self.command(), before_exec=self.mount_root_read_only)
        self.assert_serves_cold(server.wait_until_ready(), 'storage_unavailable')
        self.assertEqual(os.listdir(self.root), [])

    def mount_root_read_only(self):
        """In the child alone: its mounts are its own."""
        libc = ctypes.CDLL(None, use_errno=True)

        def mount(source, target, flags):
            if libc.mount(source, target, None, flags, None) != 0:
                raise OSError(ctypes.get_errno(), f'mount {target}')
        if libc.unshare(CLONE_NEWNS) != 0:
            raise OSError(ctypes.get_errno(), 'unshare')
        root = self.root.encode()
        mount(None, b'/', MS_REC | MS_PRIVATE)
        mount(root, root, MS_BIND)
        mount(None, root, MS_BIND | MS_REMOUNT | MS_RDONLY)

    def test_a_stop_while_loading_and_a_second_one_while_stopping_are_orderly(self):
        server = self.launch(self.command())
        server.wait_alive(lambda: 'listening' in server.log(), 'the first listener')
        server.process.send_signal(signal.SIGTERM)
        server.process.send_signal(signal.SIGTERM)
        self.assertEqual(server.process.wait(WAIT_S), 0, server.log())


if __name__ == '__main__':
    main()
