#include "tests/transport/nccl/fake/comm.hpp"

#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <set>
#include <thread>

namespace fake_nccl {
namespace {

std::string path_of(const std::string& name) {
  const char* folder = std::getenv("FAKE_NCCL_FOLDER");
  return std::string(folder != nullptr ? folder : "/tmp") + "/" + name;
}

/// Moves what fits now; returns how much.
std::size_t move_some(Segment& segment, int rank, Part& part) {
  auto& ring = part.is_send ? segment.rings[rank][part.peer] : segment.rings[part.peer][rank];
  const auto written = ring.written.load(), read = ring.read.load();
  const auto place = (part.is_send ? written : read) % kRingBytes;
  auto size = part.is_send ? kRingBytes - (written - read) : written - read;
  size = std::min({static_cast<std::size_t>(size), part.bytes - part.done, kRingBytes - place});
  if (size == 0) return 0;
  if (part.is_send) {
    std::memcpy(ring.bytes + place, part.data + part.done, size);
    ring.written.store(written + size);
  } else {
    std::memcpy(part.data + part.done, ring.bytes + place, size);
    ring.read.store(read + size);
  }
  part.done += size;
  return size;
}

}  // namespace

Comm make_comm(const std::string& name, int rank, int ranks, bool is_absent) {
  const int file = open(path_of(name).c_str(), O_CREAT | O_RDWR | O_CLOEXEC, 0600);
  if (file < 0 || ftruncate(file, sizeof(Segment)) != 0) return nullptr;
  void* memory = mmap(nullptr, sizeof(Segment), PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
  close(file);
  if (memory == MAP_FAILED) return nullptr;
  auto* comm = new troupe::transport::nccl::CommState;
  comm->name = name;
  comm->rank = rank;
  comm->ranks = ranks;
  comm->segment = static_cast<Segment*>(memory);
  if (!is_absent) comm->segment->joined[rank].store(1);
  return comm;
}

bool have_all_joined(Comm comm) {
  for (int rank = 0; rank < comm->ranks; ++rank) {
    if (comm->segment->joined[rank].load() == 0) return false;
  }
  return true;
}

bool call(Comm comm, const std::vector<Link>& links) {
  bool is_first = false;
  for (const auto& [way, peer] : links) {
    is_first = comm->segment->called[way][comm->rank][peer].exchange(1) == 0 || is_first;
  }
  return is_first;
}

bool have_called(Comm comm, const std::vector<Link>& links) {
  return std::ranges::all_of(links, [=](const Link& link) {
    return comm->segment->called[link.way][link.peer][comm->rank].load() != 0;
  });
}

bool transfer(Comm comm, std::vector<Part> parts) {
  while (!comm->is_stopping) {
    std::set<std::pair<bool, int>> busy;
    bool any_moved = false, all_done = true;
    for (auto& part : parts) {
      if (part.done == part.bytes) continue;
      all_done = false;
      // A later piece for the same rank waits for the earlier one.
      if (!busy.insert({part.is_send, part.peer}).second) continue;
      any_moved = move_some(*comm->segment, comm->rank, part) > 0 || any_moved;
    }
    if (all_done) return true;
    if (!any_moved) std::this_thread::sleep_for(std::chrono::microseconds(20));
  }
  return false;
}

void leave(Comm comm) { unlink(path_of(comm->name).c_str()); }

}  // namespace fake_nccl
