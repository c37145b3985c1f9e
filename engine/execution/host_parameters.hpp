// Parameters of one stage that are in host memory while others compute on its device.
//
// Their memory on the device is let go of and taken again in place, for all who hold it: layers,
// the store, what autograd has saved. Used in work of the device.

#pragma once

#include <ATen/core/Tensor.h>
#include <c10/core/StorageImpl.h>

#include <cstdint>
#include <set>
#include <vector>

#include "models/layer.hpp"
#include "runtime/vocabulary/units.hpp"

namespace troupe::engine {

class Device;

/// Blocks of memory in which parameters lie.
using ParameterMemory = std::set<const c10::StorageImpl*>;

/// Those of these parameters.
ParameterMemory memory_of(const std::vector<models::Parameter*>& parameters);

class HostParameters {
 public:
  /// What went to host memory, and what it newly takes there for good.
  struct Moved {
    Bytes copied;
    Bytes taken;
  };

  /// Those stay that lie in `shared` memory, which others on the device compute with. REQUIRES: all
  /// are on the device.
  HostParameters(const std::vector<models::Parameter*>& parameters, const ParameterMemory& shared);

  /// Copies to host memory what is not there as it is now, one copy per block, and lets go of the
  /// device's when that is done. Nobody may read a parameter until `fetch`.
  /// Throws c10::Error where they have left already.
  Moved evict(Device& device);

  /// The same bits come back, one copy per block. Returns their bytes. Throws c10::Error where they
  /// are there, or where the device has no memory: then they stay away.
  Bytes fetch();

  bool is_away() const { return is_away_; }
  Bytes in_host() const;  ///< Of host memory taken so far.

  /// What trains has changed since it was copied last, or may have.
  void changed();

 private:
  /// The parameters of one layer, or as many as lie one behind the other.
  struct Block {
    at::Tensor memory;  ///< All of it, as bytes.
    at::Tensor host;    ///< As many; undefined until they leave first.
    bool trains = false;
    bool is_current = false;  ///< `host` has what the device had when it changed last.
    std::int64_t bytes() const { return memory.numel(); }
  };

  std::vector<Block> blocks_;
  bool is_away_ = false;
};

}  // namespace troupe::engine
