#include "transport/nccl/nccl_library.hpp"

#include <dlfcn.h>

#include <cstdlib>
#include <utility>

namespace troupe::transport {
namespace {

/// The first with communicators that never wait (2.14) and can be split (2.18).
constexpr std::int32_t kVersionMin = 21800;

Error lacking(std::string what) {
  return {
      Errc::unavailable, std::move(what), "",
      "install NCCL 2.18 or later (2.28.7 recovers fastest), or name its file in the environment "
      "variable TROUPE_NCCL_LIBRARY"};
}

/// Looks names up in an open library and remembers the first that is missing.
class Symbols {
 public:
  explicit Symbols(void* library) : library_(library) {}

  template <class Function>
  void required(const char* name, Function*& function) {
    optional(name, function);
    if (function == nullptr && missing_.empty()) missing_ = name;
  }
  template <class Function>
  void optional(const char* name, Function*& function) {
    function = reinterpret_cast<Function*>(dlsym(library_, name));
  }
  const std::string& missing() const { return missing_; }

 private:
  void* library_;
  std::string missing_;
};

std::string look_up(void* library, nccl::Functions& calls) {
  Symbols symbols(library);
  symbols.required("ncclGetVersion", calls.get_version);
  symbols.required("ncclGetErrorString", calls.get_error_string);
  symbols.required("ncclGetUniqueId", calls.get_unique_id);
  symbols.required("ncclCommInitRankConfig", calls.comm_init_rank_config);
  symbols.required("ncclCommSplit", calls.comm_split);
  symbols.required("ncclCommGetAsyncError", calls.comm_get_async_error);
  symbols.required("ncclCommAbort", calls.comm_abort);
  symbols.required("ncclGroupStart", calls.group_start);
  symbols.required("ncclGroupEnd", calls.group_end);
  symbols.required("ncclAllReduce", calls.all_reduce);
  symbols.required("ncclReduce", calls.reduce);
  symbols.required("ncclBroadcast", calls.broadcast);
  symbols.required("ncclSend", calls.send);
  symbols.required("ncclRecv", calls.recv);
  symbols.optional("ncclCommShrink", calls.comm_shrink);
  symbols.optional("ncclCommRevoke", calls.comm_revoke);
  return symbols.missing();
}

}  // namespace

std::string NcclLibrary::default_file() {
  const char* file = std::getenv("TROUPE_NCCL_LIBRARY");
  return file != nullptr && *file != '\0' ? file : "libnccl.so.2";
}

Result<std::shared_ptr<const NcclLibrary>> NcclLibrary::load(const std::string& file) {
  // Never closed, see above.
  void* const opened = dlopen(file.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (opened == nullptr) {
    const char* why = dlerror();
    return lacking("NCCL's library '" + file + "' cannot be loaded: " + (why ? why : "no reason"));
  }
  const std::shared_ptr<NcclLibrary> library(new NcclLibrary);
  const auto missing = look_up(opened, library->calls_);
  int version = 0;
  if (library->calls_.get_version != nullptr) library->calls_.get_version(&version);
  library->version_ = version;
  if (library->calls_.get_version != nullptr && version < kVersionMin) {
    return lacking("NCCL's library '" + file + "' is version " + nccl_version_text(version) +
                   ", older than 2.18");
  }
  if (!missing.empty()) {
    return lacking("the library '" + file + "' has no function " + missing + ", so it is no NCCL");
  }
  return std::shared_ptr<const NcclLibrary>(library);
}

Error NcclLibrary::error(const std::string& what, nccl::Code code) const {
  const char* words = calls_.get_error_string(code);
  const bool is_ours = code == nccl::Code::invalid_argument || code == nccl::Code::invalid_usage;
  return {is_ours ? Errc::invalid_argument : Errc::transport_failed,
          what + ": NCCL says '" + (words != nullptr ? words : "") + "' (" +
              std::to_string(static_cast<int>(code)) + ")",
          "", "run with NCCL_DEBUG=WARN in the environment for NCCL's own words"};
}

std::string nccl_version_text(std::int32_t version) {
  // Up to 2.8 the parts had one digit less.
  const auto major = version < 10000 ? version / 1000 : version / 10000;
  const auto minor = version < 10000 ? version / 100 % 10 : version / 100 % 100;
  return std::to_string(major) + "." + std::to_string(minor) + "." + std::to_string(version % 100);
}

std::vector<std::string> missing_parts(const NcclLibrary& library) {
  std::vector<std::string> parts;
  if (!library.can_shrink()) parts.push_back("ncclCommShrink (from 2.27.3)");
  if (!library.can_revoke()) parts.push_back("ncclCommRevoke (from 2.28.7)");
  return parts;
}

}  // namespace troupe::transport
