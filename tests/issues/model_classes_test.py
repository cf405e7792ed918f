#!/usr/bin/env python3
"""Goal: models that cannot resume at every token are as good after a restart as while they are
resident, and say so where they are not cached. Method: generated models, which have no vocabulary:
prompts are token ids."""

import os
import random
import struct
import subprocess

from gguf import BOOL, with_values
from issue_server import IssueTest
from skippy_server import MODEL, main

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
