"""A document to talk about: plain English sentences, the same ones on every run."""

import random

PEOPLE = ('the keeper', 'the pilot', 'a clerk', 'the old captain', 'the cook', 'a young sailor',
          'the carpenter', 'the engineer', 'a fisherman', 'the schoolteacher', 'the doctor')
DEEDS = ('wrote a short letter about', 'walked slowly around', 'asked a question about',
         'made a careful drawing of', 'told a long story about', 'forgot the name of',
         'looked for', 'paid for', 'repaired', 'measured', 'painted', 'carried a lamp to')
THINGS = ('the stone wall', 'the small boat', 'the market square', 'the north gate',
          'the lighthouse', 'the wooden bridge', 'the water tower', 'the library',
          'the grain store', 'the west road', 'the bakery', 'the garden behind the church',
          'the ferry', 'the rope yard')
TIMES = ('In the morning', 'After the rain', 'Before the bell rang', 'On the first day of spring',
         'When the wind turned', 'Late in the evening', 'During the winter', 'Once again',
         'Without a word', 'On the way home')
ENDS = ('and nobody was surprised', 'because the day was warm', 'and then everyone went to supper',
        'so that the others could rest', 'although there was little light left',
        'and the work was done before noon', 'while the children watched from the window',
        'and it was written down in the book')


def sentences(count, seed):
    rng = random.Random(seed)
    for _ in range(count):
        yield (f'{rng.choice(TIMES)}, {rng.choice(PEOPLE)} {rng.choice(DEEDS)} '
               f'{rng.choice(THINGS)}, {rng.choice(ENDS)}.')


def text(sentence_count, seed):
    """Paragraphs of six sentences."""
    lines = list(sentences(sentence_count, seed))
    return '\n\n'.join(' '.join(lines[i:i + 6]) for i in range(0, len(lines), 6))
