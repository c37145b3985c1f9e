"""Whisper's log-mel features in float64 with numpy alone, written from the definition.

Plain on purpose: dense filter bank, one FFT per frame, no tricks shared with the C++ code.
"""
import numpy as np

RATE, FFT, HOP = 16000, 400, 160


def hertz_to_mel(hertz):
    hertz = np.asarray(hertz, np.float64)
    return np.where(hertz < 1000, hertz * 3 / 200, 15 + 27 * np.log(np.maximum(hertz, 1e-9) / 1000) / np.log(6.4))


def mel_to_hertz(mel):
    mel = np.asarray(mel, np.float64)
    return np.where(mel < 15, mel * 200 / 3, 1000 * 6.4 ** ((mel - 15) / 27))


def mel_filters(bins):
    edges = mel_to_hertz(np.linspace(0, hertz_to_mel(RATE / 2), bins + 2))
    hertz = np.fft.rfftfreq(FFT, 1 / RATE)
    rise = (hertz[None] - edges[:-2, None]) / (edges[1:-1] - edges[:-2])[:, None]
    fall = (edges[2:, None] - hertz[None]) / (edges[2:] - edges[1:-1])[:, None]
    return np.maximum(0, np.minimum(rise, fall)) * (2 / (edges[2:] - edges[:-2]))[:, None]


def log_mel(samples, bins=80):
    """[frames, bins] of float64 from 16 kHz samples; frames = len(samples) // 160."""
    padded = np.pad(np.asarray(samples, np.float64), FFT // 2, mode="reflect")
    window = 0.5 - 0.5 * np.cos(2 * np.pi * np.arange(FFT) / FFT)
    frames = 1 + (len(padded) - FFT) // HOP
    power = np.stack([np.abs(np.fft.rfft(padded[i * HOP : i * HOP + FFT] * window)) ** 2 for i in range(frames)])
    power = power[: len(samples) // HOP]  # The last frame is dropped.
    logs = np.log10(np.maximum(power @ mel_filters(bins).T, 1e-10))
    return (np.maximum(logs, logs.max() - 8) + 4) / 4
