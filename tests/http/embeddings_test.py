#!/usr/bin/env python3
"""Goal: a model whose file names a pooling type makes embeddings, and says so where text is asked
of it. Method: the demo model with such a value in its header, one for each kind of pooling."""

import base64
import math
import os
import struct

from gguf import UINT32, with_values
from skippy_server import MODEL, ServerTest, chat_body, doc, main, run_threads, wait_for

EMBEDDINGS = '/v1/embeddings'
MEAN, FIRST, LAST, RANK = 1, 2, 3, 4


class EmbeddingsTest(ServerTest):

    def model_with(self, pooling):
        path = os.path.join(self.work, f'pooling-{pooling}.gguf')
        if not os.path.exists(path):
            with_values(MODEL, path, {'llama.pooling_type': (UINT32, struct.pack('<I', pooling))})
        return path

    def serve(self, pooling):
        return self.start('-c', '512', root='', model=self.model_with(pooling))

    def embed(self, server, value, **more):
        return [entry['embedding'] for entry in
                server.ask(EMBEDDINGS, {'input': value, **more}).body['data']]

    def test_texts_have_embeddings_of_length_one_that_tell_them_apart(self):
        for pooling in (MEAN, FIRST, LAST):
            server = self.serve(pooling)
            texts = [doc(20, 1), doc(20, 2), 'river']
            vectors = self.embed(server, texts)
            for text, vector in zip(texts, vectors):
                self.assertAlmostEqual(math.fsum(v * v for v in vector), 1, places=4)
                self.assertEqual(self.embed(server, text), [vector])
                self.assertEqual(self.embed(server, server.tokenize(text)), [vector])
            if pooling != FIRST:  # nothing precedes the first token of a causal model
                self.assertNotEqual(vectors[0], vectors[1])
            self.assertEqual(len(vectors[0]), 256)

    def test_both_forms_hold_the_same_numbers_and_usage_counts_every_input(self):
        server = self.serve(MEAN)
        reply = server.ask(EMBEDDINGS, {'input': ['river', 'stone'], 'encoding_format': 'base64',
                                        'model': 'm', 'user': 'u'})
        counted = sum(len(server.tokenize(text)) for text in ('river', 'stone'))
        self.assertEqual(reply.usage, {'prompt_tokens': counted, 'total_tokens': counted})
        self.assertEqual((reply.body['object'], reply.body['model']), ('list', 'm'))
        for index, text in enumerate(('river', 'stone')):
            entry = reply.body['data'][index]
            data = base64.b64decode(entry['embedding'])
            self.assertEqual((entry['object'], entry['index']), ('embedding', index))
            self.assertEqual(list(struct.unpack(f'<{len(data) // 4}f', data)),
                             [struct.unpack('<f', struct.pack('<f', v))[0]
                              for v in self.embed(server, text)[0]])

    def test_many_clients_at_once_get_what_each_gets_alone(self):
        server = self.serve(MEAN)
        texts = [doc(10, seed) for seed in range(8)]
        alone = [self.embed(server, text) for text in texts]
        self.assertEqual(run_threads(lambda text: self.embed(server, text), texts), alone)
        self.assertEqual(server.engine()['requests_total'], 16)

    def test_what_is_no_input_is_refused_by_name(self):
        server = self.serve(MEAN)
        for body, param, code in (
                ({}, 'input', 'missing_required_parameter'), ({'input': []}, 'input', None),
                ({'input': ''}, 'input', None), ({'input': [[]]}, 'input', None),
                ({'input': [1, 'x']}, 'input', None), ({'input': [10 ** 9]}, 'input', None),
                ({'input': 5}, 'input', 'invalid_type'),
                ({'input': ['x'] * 2049}, 'input', None),
                ({'input': 'x', 'encoding_format': 'hex'}, 'encoding_format', None),
                ({'input': 'x', 'dimensions': 8}, 'dimensions', 'unsupported_parameter'),
                ({'input': doc(800, 1)}, 'input', 'context_length_exceeded')):
            reply = server.post(EMBEDDINGS, body)
            self.assertEqual((reply.status, reply.body['error']['param']), (400, param), body)
            if code:
                self.assertEqual(reply.body['error']['code'], code)

    def test_models_are_asked_for_what_they_can(self):
        server = self.serve(MEAN)
        reply = server.post('/v1/chat/completions', chat_body([{'role': 'user', 'content': 'x'}]))
        self.assertEqual(reply.status, 400)
        self.assertIn('/v1/embeddings', reply.body['error']['message'])
        self.assertEqual(server.engine()['model']['cache_reason'], 'embeddings are not cached')
        server.stop()
        reply = self.start_cold().post(EMBEDDINGS, {'input': 'river'})
        self.assertEqual((reply.status, reply.body['error']['code']),
                         (501, 'embeddings_not_supported'))
        ranking = self.launch(self.command(root='', model=self.model_with(RANK)))
        wait_for(lambda: ranking.process.poll() is not None, 'the end of the server')
        self.assertNotEqual(ranking.process.returncode, 0)
        self.assertIn('models that rank are not served', ranking.log())


if __name__ == '__main__':
    main()
