"""Epoch orders computed apart from the C++ code; the numbers stand in epoch_order.test.cpp.

SplitMix64 and Lemire's bounded draw in Python integers; Fisher and Yates from the last place down.
Run: python3 order_reference.py
"""
MASK = (1 << 64) - 1


def splitmix(state):
    while True:
        state = (state + 0x9E3779B97F4A7C15) & MASK
        z = ((state ^ (state >> 30)) * 0xBF58476D1CE4E5B9) & MASK
        z = ((z ^ (z >> 27)) * 0x94D049BB133111EB) & MASK
        yield z ^ (z >> 31)


def epoch_order(seed, epoch, count):
    stream = splitmix(seed ^ next(splitmix(epoch)))
    order = list(range(count))
    for left in range(count, 1, -1):
        while True:
            product = next(stream) * left
            if product & MASK >= (1 << 64) % left:
                break
        pick = product >> 64
        order[left - 1], order[pick] = order[pick], order[left - 1]
    return order


if __name__ == "__main__":
    for epoch in (0, 1):
        print(42, epoch, epoch_order(42, epoch, 8))
