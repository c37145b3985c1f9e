// Streams of the fake NCCL's devices: host memory, and a thread that works one piece after the
// other.
//
// Needs nothing of the project but values, so that a plug-in may have it.

#pragma once

#include <dlfcn.h>

#include <memory>
#include <stdexcept>
#include <string>

#include "transport/nccl/nccl_stream.hpp"

namespace troupe::transport::testing {

/// Finds a function of the fake library in this file. Throws where it is not there.
template <class Function>
void find_in(const std::string& file, const char* name, Function*& function) {
  void* const library = dlopen(file.c_str(), RTLD_NOW | RTLD_LOCAL);
  void* const found = library != nullptr ? dlsym(library, name) : nullptr;
  if (found == nullptr) throw std::runtime_error(file + " has no " + name);
  function = reinterpret_cast<Function*>(found);
}

/// A stream of the device with this name, of the fake library in this file. Throws as above.
std::shared_ptr<NcclStream> fake_stream(const std::string& file, const std::string& device);

/// How often streams of this process have allocated memory that compute reads too.
int shared_allocations();

}  // namespace troupe::transport::testing
