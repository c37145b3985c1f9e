#include "engine/execution/layer_faults.hpp"

#include <c10/util/Exception.h>

#include <exception>
#include <new>
#include <utility>

#include "engine/execution/device_errors.hpp"
#include "runtime/vocabulary/first_line.hpp"
#include "runtime/vocabulary/user_code.hpp"

namespace troupe::engine {

Error layer_fault(std::string where) {
  const auto told = [&](const std::string& what) {
    return Error{Errc::internal, what, std::move(where),
                 "where a plug-in computes there, correct it (`troupe check JOB` tries each stage "
                 "alone); else it is a defect: please report it with the job file"};
  };
  try {
    throw;
  } catch (const UserFault&) {
    throw;
  } catch (const std::bad_alloc&) {
    return {Errc::unavailable, "out of memory", std::move(where),
            "use a smaller model, or a machine with more memory"};
  } catch (const c10::Error& error) {
    if (const auto refused = indeterminate_operator(error.msg()))
      return {Errc::internal, "LibTorch: " + *refused, std::move(where), kIndeterminateFix};
    return told("LibTorch: " + first_line(error.msg()));
  } catch (const std::exception& fault) {
    return told("throws: " + first_line(fault.what()));
  } catch (...) {
    return told("throws no std::exception");
  }
}

}  // namespace troupe::engine
