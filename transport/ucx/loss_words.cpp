#include "transport/ucx/loss_words.hpp"

#include <ucs/type/status.h>

namespace troupe::transport {

std::string loss_words(int status) {
  switch (status) {
    // What UCX calls so is any end that it noticed by itself: a closed socket, a dead process, a
    // cable that is cut. Which of them it was it does not say.
    case UCS_ERR_ENDPOINT_TIMEOUT:
    case UCS_ERR_CONNECTION_RESET:
    case UCS_ERR_IO_ERROR:
    case UCS_ERR_TIMED_OUT: return "the connection to it broke";
    case UCS_ERR_NOT_CONNECTED:
    case UCS_ERR_REJECTED: return "it does not take the connection";
    case UCS_ERR_UNREACHABLE: return "no network transport of this machine reaches it";
    case UCS_ERR_NO_DEVICE: return "the network device of the connection is gone";
    case UCS_ERR_NO_MEMORY:
    case UCS_ERR_SHMEM_SEGMENT: return "there was no memory left for its messages";
    default: return "the connection to it failed (transport status " + std::to_string(status) + ")";
  }
}

}  // namespace troupe::transport
