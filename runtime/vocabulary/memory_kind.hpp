// Whose memory a buffer is in, as those see it who move bytes between nodes. Pure.

#pragma once

#include <cstdint>

namespace troupe {

/// Of a buffer that messages are sent from.
enum class MemoryKind : std::uint8_t {
  host,
  cuda,   ///< Of an NVIDIA GPU.
  other,  ///< Of a device that no transport knows.
};

}  // namespace troupe
