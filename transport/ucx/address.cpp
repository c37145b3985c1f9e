#include "transport/ucx/address.hpp"

#include <algorithm>
#include <cstring>
#include <string>

#include "transport/process_number.hpp"

namespace troupe::transport {
namespace {

constexpr char kMagic[8] = {'u', 'c', 'x', '-', '3', 0, 0, 0};

/// The fields of fixed size, without padding.
struct Fixed {
  char magic[8];
  std::uint64_t process;
  std::uint32_t ucx_major, ucx_minor;
  AccessToken token;
  std::uint64_t machine, process_space, network_space, started;
  std::int64_t process_id;
};
static_assert(sizeof(Fixed) == 80);

std::string version(std::uint32_t major, std::uint32_t minor) {
  return std::to_string(major) + "." + std::to_string(minor);
}

}  // namespace

AccessToken make_access_token() { return {make_process_number(), make_process_number()}; }

std::vector<std::byte> encode(const UcxAddress& address) {
  Fixed fixed{{},
              address.process,
              address.ucx_major,
              address.ucx_minor,
              address.token,
              address.identity.machine,
              address.identity.process_space,
              address.identity.network_space,
              address.identity.started,
              address.identity.process_id};
  std::memcpy(fixed.magic, kMagic, sizeof kMagic);
  std::vector<std::byte> bytes(sizeof fixed + address.worker.size());
  std::memcpy(bytes.data(), &fixed, sizeof fixed);
  std::ranges::copy(address.worker, bytes.begin() + sizeof fixed);
  return bytes;
}

Result<UcxAddress> decode_ucx_address(Peer peer, std::span<const std::byte> bytes,
                                      std::uint32_t ucx_major, std::uint32_t ucx_minor) {
  Fixed fixed{};
  if (bytes.size() > sizeof fixed) std::memcpy(&fixed, bytes.data(), sizeof fixed);
  if (std::memcmp(fixed.magic, kMagic, sizeof kMagic) != 0) {
    return Error{Errc::invalid_argument,
                 "the address of peer " + std::to_string(peer) + " is not one of backend ucx", "",
                 "use the same backend on all nodes"};
  }
  if (fixed.ucx_major != ucx_major || fixed.ucx_minor != ucx_minor) {
    return Error{Errc::invalid_argument,
                 "peer " + std::to_string(peer) + " runs UCX " +
                     version(fixed.ucx_major, fixed.ucx_minor) + ", this node runs " +
                     version(ucx_major, ucx_minor),
                 "", "install the same UCX release on all nodes"};
  }
  return UcxAddress{
      fixed.process,
      fixed.ucx_major,
      fixed.ucx_minor,
      fixed.token,
      {fixed.machine, fixed.process_space, fixed.network_space, fixed.started, fixed.process_id},
      {bytes.begin() + sizeof fixed, bytes.end()}};
}

}  // namespace troupe::transport
