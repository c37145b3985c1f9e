#include "actors/link/exceptions.hpp"

#include <new>

#include "engine/execution/executor.hpp"
#include "runtime/vocabulary/first_line.hpp"
#include "runtime/vocabulary/user_code.hpp"

namespace troupe::actors {

Error describe_exception(const std::string& who, const std::exception_ptr& exception) {
  const auto error = [&](const std::string& what, const std::string& fix) {
    return Error{Errc::internal, who + " stopped: " + first_line(what), {}, fix};
  };
  const std::string report = "a defect: please report it with the job file and the log";
  try {
    std::rethrow_exception(exception);
  } catch (const std::bad_alloc&) {
    return error("out of memory", engine::kMemoryFix);
  } catch (const UserFault& fault) {
    return error(fault.what(), fault.error().fix);
  } catch (const std::exception& what) {
    return error(what.what(), report);
  } catch (...) {
    return error("an exception of unknown type", report);
  }
}

}  // namespace troupe::actors
