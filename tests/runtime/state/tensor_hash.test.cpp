#include "tests/torch_catch.hpp"

#include "runtime/state/tensor_hash.hpp"

#include <ATen/ops/arange.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/tensor.h>
#include <ATen/ops/zeros.h>

#include <set>
#include <vector>

namespace troupe::state {
namespace {

TEST_CASE("equal tensors have equal hashes, whatever their strides", "[state]") {
  const auto tensor = at::arange(12, at::kFloat).reshape({3, 4});
  CHECK(hash_tensor(tensor) == hash_tensor(tensor.clone()));
  CHECK(hash_tensor(tensor) == hash_tensor(tensor.t().contiguous().t()));
}

TEST_CASE("shape, type, sign of zero and order all count", "[state]") {
  std::set<std::uint64_t> hashes;
  hashes.insert(hash_tensor(at::zeros({6})));
  hashes.insert(hash_tensor(at::zeros({2, 3})));
  hashes.insert(hash_tensor(at::zeros({3, 2})));
  hashes.insert(hash_tensor(at::zeros({3}, at::kDouble)));
  hashes.insert(hash_tensor(at::zeros({6}, at::kInt)));
  hashes.insert(hash_tensor(-at::zeros({6})));
  hashes.insert(hash_tensor(at::empty({0})));
  CHECK(hashes.size() == 7);
  const auto a = at::tensor({1.0F, 2.0F}), b = at::tensor({2.0F, 1.0F});
  CHECK(hash_tensor(b, hash_tensor(a)) != hash_tensor(a, hash_tensor(b)));
}

TEST_CASE("every single flipped bit changes the hash, and no two of them collide",
          "[state][property]") {
  std::vector<std::byte> bytes(61, std::byte{0x5a});
  std::set<std::uint64_t> hashes{hash_bytes(bytes)};
  for (std::size_t i = 0; i < bytes.size(); ++i) {
    for (int bit = 0; bit < 8; ++bit) {
      bytes[i] ^= std::byte{1} << bit;
      hashes.insert(hash_bytes(bytes));
      bytes[i] ^= std::byte{1} << bit;
    }
  }
  CHECK(hashes.size() == 61 * 8 + 1);
}

TEST_CASE("lengths count where bytes are zero", "[state]") {
  std::set<std::uint64_t> hashes;
  for (std::size_t length = 0; length < 40; ++length)
    hashes.insert(hash_bytes(std::vector<std::byte>(length)));
  CHECK(hashes.size() == 40);
}

}  // namespace
}  // namespace troupe::state
