#!/usr/bin/env python3
"""Goal: models that cannot resume at every token are as good after a restart as while they are
resident, and say so where they are not cached. Method: generated models, which have no vocabulary:
prompts are token ids, and answers are compared by the logits of their first token."""

import os
import random
import struct
import subprocess

from gguf import BOOL, with_values
from issue_server import IssueTest
from skippy_server import MODEL, main, run_threads

GENERATOR = os.environ['SKIPPY_MODEL_GENERATOR']
WRITER = os.environ['SKIPPY_MODEL_WRITER']
GENERATOR_SEED = '20260731'
VOCABULARY = 128  # at least so many ids exist in every generated model
SLACK = 1  # the last token of a prompt is always computed


def tokens(count, seed):
    rng = random.Random(seed)
    return [rng.randrange(1, VOCABULARY) for _ in range(count)]


class ModelClassesTest(IssueTest):
    options = ('-c', '2048', '-np', '2', '-t', '2')

    def generate(self, architecture):
        """A tiny model that reacts to its input."""
        folder = os.path.join(self.work, architecture)
        os.mkdir(folder)
        subprocess.run([GENERATOR, '-a', architecture, '-s', GENERATOR_SEED, '-o', folder],
                       check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        written, = os.listdir(folder)
        model = os.path.join(self.work, f'{architecture}.gguf')
        subprocess.run([WRITER, model, '--sensitize', os.path.join(folder, written)], check=True)
        return model

    # Case D1.
    def test_a_hybrid_is_restored_as_far_as_it_was_resident(self):
        prompt = tokens(600, 1)
        model = self.generate('granitehybrid')
        first = None
        for tier, server in self.each_tier(model=model):
            reply = server.complete(prompt, max_tokens=1, logprobs=1)
            if first is None:
                self.assertEqual(reply.cached, 0)
                first = reply
                reply = server.complete(prompt, max_tokens=1, logprobs=1)
            self.assertEqual(reply.cached, len(prompt) - SLACK, tier)
            self.assertEqual(reply.body['timings'][f'cached_{tier.lower()}'], reply.cached)
            self.assertAlmostEqual(reply.logprobs[0], first.logprobs[0], delta=0.05)
        self.assertEqual(server.engine()['model']['family'], 'hybrid')
        self.assertIsNone(server.engine()['model']['cache_reason'])
        longer = server.complete(prompt + tokens(60, 2), max_tokens=1)
        self.assertGreaterEqual(longer.cached, len(prompt) - SLACK)

    # Case D4.
    def test_each_turn_of_a_hybrid_computes_its_new_text_only(self):
        model = self.generate('granitehybrid')
        for start, turn_tokens in ((300, 100), (40, 12)):
            prompt = tokens(start, start)
            for tier, server in self.each_tier('-np', '1', model=model):
                for turn in range(3):
                    reply = server.complete(prompt, max_tokens=4)
                    known = len(prompt)
                    if tier != 'L1' or turn > 0:
                        self.assertLessEqual(reply.computed, turn_tokens + SLACK, (tier, turn))
                    if turn < 2:
                        prompt = prompt + tokens(turn_tokens, 1000 * known + turn)
            server.stop()

    # Case D5.
    def test_many_conversations_with_a_window_in_a_small_context_end_in_no_bad_state(self):
        model = self.generate('gpt-oss')
        server = self.start('-c', '1024', '-np', '4', model=model)
        rng = random.Random(5)
        prompts = [tokens(rng.randrange(100, 450), 50 + i) for i in range(12)]
        order = [rng.randrange(12) for _ in range(60)]

        def client(numbers):
            for number in numbers:
                server.complete(prompts[number], max_tokens=4)
        run_threads(client, [order[i::4] for i in range(4)])
        server.wait_until_idle()
        cold = self.start('-c', '1024', '-np', '4', root='', model=model)
        for prompt in prompts:
            warm = server.complete(prompt, max_tokens=1, logprobs=1)
            self.assertGreater(warm.cached, 0)
            expected = cold.complete(prompt, max_tokens=1, logprobs=1, cache_prompt=False)
            self.assertAlmostEqual(warm.logprobs[0], expected.logprobs[0], delta=0.1)
        engine = server.engine()
        self.assertEqual(engine['model']['family'], 'sliding-window')
        self.assertEqual((engine['lanes_busy'], engine['queued']), (0, 0))

    # Case D7.
    def test_a_model_that_is_not_cached_says_so_at_start_and_in_status(self):
        model = os.path.join(self.work, 'acausal.gguf')
        with_values(MODEL, model, {'llama.attention.causal': (BOOL, struct.pack('<?', False))})
        server = self.start('-c', '512', model=model)
        for _ in range(2):
            self.assertEqual(server.complete('The river stone', max_tokens=1).cached, 0)
        reason = server.engine()['model']['cache_reason']
        self.assertIn('not causal', reason)
        self.assertIn(reason, server.log())


if __name__ == '__main__':
    main()
