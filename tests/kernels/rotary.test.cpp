#include "kernels/rotary.hpp"

#include <cmath>

#include "tests/kernels/gradient_check.hpp"
#include "tests/torch_catch.hpp"

using namespace troupe::kernels;

TEST_CASE("text is turned by the positions that are given", "[kernels]") {
  const auto table = text_rotary({0, 1, 2, 0, 7}, 4, 100, at::kDouble, at::kCPU);
  // Head size 4: frequencies 1 and 100^(-1/2) = 0.1.
  const double positions[] = {0, 1, 2, 0, 7};
  for (int row = 0; row < 5; ++row)
    for (int j = 0; j < 2; ++j) {
      const double angle = positions[row] * (j == 0 ? 1.0 : 0.1);
      CHECK(std::abs(table.cosine[row][j].item<double>() - std::cos(angle)) < 1e-15);
      CHECK(std::abs(table.sine[row][j].item<double>() - std::sin(angle)) < 1e-15);
    }
}

TEST_CASE("patch positions follow 2x2 blocks", "[kernels]") {
  // A 2 x 4 grid: the left block (0,0) (0,1) (1,0) (1,1), then the right one (0,2) (0,3) (1,2)
  // (1,3). Head size 4 has one frequency, 1, for the row and one for the column.
  const auto table = grid_rotary({2}, {4}, 2, 4, 10000, at::kDouble, at::kCPU);
  const double rows[] = {0, 0, 1, 1, 0, 0, 1, 1}, columns[] = {0, 1, 0, 1, 2, 3, 2, 3};
  for (int i = 0; i < 8; ++i) {
    CHECK(std::abs(table.sine[i][0].item<double>() - std::sin(rows[i])) < 1e-15);
    CHECK(std::abs(table.sine[i][1].item<double>() - std::sin(columns[i])) < 1e-15);
  }
}

TEST_CASE("rotate turns pairs half a head apart", "[kernels]") {
  // One row at position 1, head [1 0 | 0 1]: pair (1, 0) by angle 1 -> (cos 1, sin 1), pair (0, 1)
  // by 0.1 -> (-sin 0.1, cos 0.1).
  const auto table = text_rotary({0, 1}, 4, 100, at::kDouble, at::kCPU);
  const auto heads = at::arange(8, at::kDouble).view({2, 1, 4}).mul(0.0).clone();
  heads[1][0][0] = 1, heads[1][0][3] = 1;
  const auto out = rotate(heads, table)[1][0];
  CHECK(std::abs(out[0].item<double>() - std::cos(1.0)) < 1e-15);
  CHECK(std::abs(out[2].item<double>() - std::sin(1.0)) < 1e-15);
  CHECK(std::abs(out[1].item<double>() + std::sin(0.1)) < 1e-15);
  CHECK(std::abs(out[3].item<double>() - std::cos(0.1)) < 1e-15);
}

TEST_CASE("rotate has the derivatives of its definition, also for strided heads",
          "[kernels][property]") {
  const auto table = text_rotary({0, 1, 2, 0, 1, 2, 3}, 6, 10000, at::kDouble, at::kCPU);
  const auto packed = leaf({7, 3, 2, 6});
  CHECK(gradient_error([&] { return rotate(packed.unbind(1)[1], table); }, {packed}) < 1e-8);
}

TEST_CASE("rotate agrees between types", "[kernels]") {
  const auto heads = values({7, 2, 6});
  const std::vector<std::int64_t> positions{0, 1, 2, 3, 4, 5, 6};
  const auto exact = rotate(heads, text_rotary(positions, 6, 10000, at::kDouble, at::kCPU));
  const auto narrow = text_rotary(positions, 6, 10000, at::kBFloat16, at::kCPU);
  CHECK(narrow.cosine.scalar_type() == at::kFloat);
  CHECK(largest_difference(rotate(heads.to(at::kFloat), narrow), exact) < 1e-6);
  CHECK(largest_difference(rotate(heads.to(at::kBFloat16), narrow), exact) < 0.02);
}
