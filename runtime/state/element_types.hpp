// Element types of safetensors files as LibTorch's, for the reader and the writer.

#pragma once

#include <optional>

#include <c10/core/ScalarType.h>

#include "runtime/state/safetensors_header.hpp"

namespace troupe::state {

/// LibTorch's type for a file's.
at::ScalarType scalar_type(ElementType type);

/// A file's type for LibTorch's; none where the format (or this code) lacks it.
std::optional<ElementType> element_type(at::ScalarType type);

}  // namespace troupe::state
