"""The masks of attention_bench.cpp, for FlexAttention and as tables: which keys a query sees.

A sample is (tokens, [(begin, end) of each image]). Text sees all before it in its sample, an image's tokens see their image alone.
"""

import itertools

MASKS = ["embedded", "packed", "causal", "packed text"]  # Those with a goal first: a limit may cut the rest.
TEXT, IMAGE = 160, 576


def with_images(tokens):
    """Text of 160 tokens before each image of 576, text at the end."""
    starts = range(TEXT, tokens - IMAGE + 1, TEXT + IMAGE)
    return tokens, [(start, start + IMAGE) for start in starts]


def text_only(tokens):
    return tokens, []


def packed(tokens, make):
    """Samples of many lengths: a half, a quarter and so on, the last two equal."""
    samples, left = [], tokens
    while left > 0:
        samples.append(make(left // 2 if left > 256 else left))
        left -= samples[-1][0]
    return samples


def samples_of(mask, tokens):
    return {"causal": lambda: [text_only(tokens)], "embedded": lambda: [with_images(tokens)],
            "packed": lambda: packed(tokens, with_images), "packed text": lambda: packed(tokens, text_only)}[mask]()


def tables_of(samples):
    """Lists by token: its sample, its image (or -1), and the first and the behind-last key that it sees."""
    sample, span, begin, end, images = [], [], [], [], itertools.count()
    for index, (tokens, spans) in enumerate(samples):
        start = len(sample)
        sample += [index] * tokens
        span += [-1] * tokens
        begin += [start] * tokens
        end += range(start + 1, start + tokens + 1)
        for first, behind in spans:
            at, size = slice(start + first, start + behind), behind - first
            span[at], begin[at], end[at] = [next(images)] * size, [start + first] * size, [start + behind] * size
    return {"sample": sample, "span": span, "begin": begin, "end": end}


def rule_by_names(mask, table):
    """A mask function for FlexAttention that compares what tokens belong to, no more than this mask needs. `table`: tensors by name."""
    sample, span = table["sample"], table["span"]

    def causal(b, h, q, k):
        return q >= k

    def embedded(b, h, q, k):
        return ((span[q] < 0) & (q >= k)) | ((span[q] >= 0) & (span[q] == span[k]))

    def packed_images(b, h, q, k):
        return ((span[q] < 0) & (q >= k) & (sample[q] == sample[k])) | ((span[q] >= 0) & (span[q] == span[k]))

    def packed_text(b, h, q, k):
        return (q >= k) & (sample[q] == sample[k])

    return {"causal": causal, "embedded": embedded, "packed": packed_images, "packed text": packed_text}[mask]


def rule_by_ranges(table):
    """The same by the first and the behind-last key of each query: nothing is looked up by key."""
    begin, end = table["begin"], table["end"]

    def sees(b, h, q, k):
        return (k >= begin[q]) & (k < end[q])

    return sees
