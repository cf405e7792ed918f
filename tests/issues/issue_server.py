"""What the tests of reported bugs have in common: each tier on its own, and models and adapters
made from the demo model."""

import os
import random
import struct

from gguf import text
from skippy_server import MODEL, ServerTest, doc

CHAT, COMPLETION = '/v1/chat/completions', '/v1/completions'
TOOLS_TEMPLATE = os.path.join(os.path.dirname(os.path.abspath(__file__)), 'tools_template.jinja')
RAM = ('--cache-ram', '64')
TOOL_OPTIONS = ('--chat-template-file', TOOLS_TEMPLATE)


def tool(name, properties=None):
    properties = properties or {'colour': {'enum': ['red', 'green', 'blue']}}
    return {'type': 'function', 'function': {'name': name, 'parameters': {
        'type': 'object', 'properties': properties, 'required': list(properties),
        'additionalProperties': False}}}


def with_bos(path, out):
    """The demo model with another tokenizer setting: a BOS before every text."""
    with open(path, 'rb') as file:
        data = bytearray(file.read())
    key = b'tokenizer.ggml.add_bos_token'
    data[data.index(key) + len(key) + 4] = 1  # after the type of the value
    with open(out, 'wb') as file:
        file.write(data)


def write_lora(out, seed, rank=4, width=256):
    """An adapter of the first layer's queries, as GGUF."""
    rng = random.Random(seed)
    values = [('general.type', 'adapter'), ('general.architecture', 'llama'),
              ('adapter.type', 'lora')]
    head = b'GGUF' + struct.pack('<IQQ', 3, 2, len(values) + 1)
    for key, value in values:
        head += text(key) + struct.pack('<I', 8) + text(value)
    head += text('adapter.lora.alpha') + struct.pack('<If', 6, float(rank))
    for index, (part, shape) in enumerate((('lora_a', (width, rank)), ('lora_b', (rank, width)))):
        head += text(f'blk.0.attn_q.weight.{part}')
        head += struct.pack('<IQQIQ', 2, *shape, 0, index * 4 * rank * width)
    head += bytes(-len(head) % 32)
    data = [rng.gauss(0, 0.2) for _ in range(2 * rank * width)]
    with open(out, 'wb') as file:
        file.write(head + struct.pack(f'<{len(data)}f', *data))


class IssueTest(ServerTest):
    """A test that runs its steps in every tier."""

    def to_tier(self, tier, server, *options, model=MODEL):
        """The server that finds what was asked so far in that tier: L1, L2 or L3, in this order."""
        if tier == 'L2':
            self.push_out(server)
        return self.restart(server, *options, model=model) if tier == 'L3' else server

    def restart(self, server, *options, model=MODEL):
        """A kill once everything is durable: what the new server finds comes from the disk."""
        server.wait_until_durable()
        server.kill9()
        return self.start(*options, model=model)

    def push_out(self, server):
        """Fills L1 with other things, once the tiers below have all of it."""
        server.wait_until_durable()
        for number in range(server.engine()['lanes']):
            server.complete([40 + number] * 40, max_tokens=1, cache_salt=f'filler {number}')
        server.wait_until_idle()

    def each_tier(self, *options, model=MODEL):
        """Yields (tier, server): first a server that computes, then the same one with nothing in
        L1, then one that finds everything on disk."""
        server = self.start(*options, *RAM, model=model)
        yield 'L1', server
        self.push_out(server)
        before = server.engine()
        yield 'L2', server
        after = server.engine()
        self.assertEqual(after['cached_l3_tokens_total'], before['cached_l3_tokens_total'])
        yield 'L3', self.restart(server, *options, *RAM, model=model)
