// Which kinds of devices add up by NCCL over streams of their own making: a table, by the name that
// a job file has for them. GPUs need no row here; a plug-in that brings a device writes one.
//
// Thread-safe.

#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>

#include "transport/nccl/nccl_stream.hpp"

namespace troupe::transport {

/// A new stream of a device: of the node with this number the `index`th one. Errors: the device's.
using NcclStreamMaker =
    std::function<Result<std::shared_ptr<NcclStream>>(std::int32_t node, std::int32_t index)>;

/// Streams of devices of this kind ("cpu", "cuda", a plug-in's) are made so from now on, instead of
/// however else. `make` may be called from several threads.
void register_nccl_streams(const std::string& kind, NcclStreamMaker make);

/// Empty where nobody has registered any.
NcclStreamMaker find_nccl_streams(const std::string& kind);

}  // namespace troupe::transport
