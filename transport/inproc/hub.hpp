// Where the in-process transports of one group of threads find each other.
//
// Thread-safe. One mutex guards the hub and the state of all its transports: bytes are copied and
// operations completed outside it, so it is held for table look-ups only.

#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <mutex>

namespace troupe::transport {

class InprocTransport;

class InprocHub {
 public:
  /// The hub used when the options name none.
  static std::shared_ptr<InprocHub> of_process();

 private:
  friend class InprocTransport;

  std::mutex mutex_;
  std::map<std::uint64_t, InprocTransport*> transports_;  ///< By their process number.
};

}  // namespace troupe::transport
