#include "transport/process_number.hpp"

#include <random>

namespace troupe::transport {

std::uint64_t make_process_number() {
  std::random_device device;
  std::uint64_t number = 0;
  while (number == 0) number = (std::uint64_t{device()} << 32) | device();
  return number;
}

}  // namespace troupe::transport
