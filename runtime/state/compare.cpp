#include "runtime/state/compare.hpp"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <map>

#include "runtime/state/gradient_norm.hpp"

namespace troupe::state {

namespace {

constexpr std::size_t kWorstCount = 5;
constexpr double kFloor = 1e-8;  // Below this the difference counts as absolute (interfaces.md).

at::Tensor widened(const at::Tensor& tensor) {
  return tensor.detach().to(at::kCPU, at::kDouble).contiguous();
}

// Equal infinities and NaN on both sides count as no difference.
double element_difference(double a, double b) {
  if (a == b || (std::isnan(a) && std::isnan(b))) return 0;
  const double difference = std::abs(a - b);
  return std::isnan(difference) ? std::numeric_limits<double>::infinity() : difference;
}

bool same_bits(const at::Tensor& a, const at::Tensor& b) {
  if (a.scalar_type() != b.scalar_type()) return false;
  const auto plain_a = a.detach().cpu().contiguous(), plain_b = b.detach().cpu().contiguous();
  return plain_a.nbytes() == 0 ||
         std::memcmp(plain_a.const_data_ptr(), plain_b.const_data_ptr(), plain_a.nbytes()) == 0;
}

std::string shape_text(const at::Tensor& tensor) {
  std::string text = "[";
  for (const auto size : tensor.sizes())
    text += (text.size() > 1 ? ", " : "") + std::to_string(size);
  return text + "]";
}

// What keeps the two maps from being compared, one phrase per tensor.
std::vector<std::string> mismatches(const TensorMap& a, const TensorMap& b,
                                    const std::string& where_a, const std::string& where_b) {
  std::vector<std::string> problems;
  for (const auto& [name, tensor] : a) {
    const auto other = b.find(name);
    if (other == b.end())
      problems.push_back("'" + name + "' is only in " + where_a);
    else if (tensor.sizes() != other->second.sizes())
      problems.push_back("'" + name + "' has shape " + shape_text(tensor) + " in " + where_a +
                         " and " + shape_text(other->second) + " in " + where_b);
  }
  for (const auto& [name, tensor] : b)
    if (!a.contains(name)) problems.push_back("'" + name + "' is only in " + where_b);
  return problems;
}

Error mismatch_error(const std::vector<std::string>& problems, std::string_view what) {
  constexpr std::size_t kNamed = 3;
  std::string message = std::to_string(problems.size()) + " " + std::string(what) +
                        (problems.size() == 1 ? " does" : "s do") + " not match: ";
  for (std::size_t i = 0; i < std::min(kNamed, problems.size()); ++i)
    message += (i == 0 ? "" : "; ") + problems[i];
  if (problems.size() > kNamed)
    message += "; and " + std::to_string(problems.size() - kNamed) + " more";
  return {Errc::invalid_argument, message, "", "compare runs of the same model"};
}

}  // namespace

double tensor_difference(const at::Tensor& a, const at::Tensor& b, DifferenceNorm norm) {
  const auto wide_a = widened(a), wide_b = widened(b);
  const auto* left = wide_a.const_data_ptr<double>();
  const auto* right = wide_b.const_data_ptr<double>();
  double difference = 0, size = 0;
  for (std::int64_t i = 0; i < wide_a.numel(); ++i) {
    const double d = element_difference(left[i], right[i]);
    // An infinite element would hide every finite difference behind a division by infinity.
    const double magnitude = std::isfinite(left[i]) ? std::abs(left[i]) : 0;
    difference = norm == DifferenceNorm::max ? std::max(difference, d) : difference + d * d;
    size = norm == DifferenceNorm::max ? std::max(size, magnitude) : size + magnitude * magnitude;
  }
  if (norm == DifferenceNorm::max) return difference / std::max(size, kFloor);
  return std::sqrt(difference) / std::max(std::sqrt(size), kFloor);
}

Result<TensorsComparison> compare_tensors(const TensorMap& a, const TensorMap& b,
                                          DifferenceNorm norm, std::string_view what,
                                          const std::string& where_a, const std::string& where_b) {
  if (const auto problems = mismatches(a, b, where_a, where_b); !problems.empty())
    return mismatch_error(problems, what);
  TensorsComparison result;
  std::map<std::string, double> modules;
  for (const auto& [name, tensor] : a) {
    const auto& other = b.at(name);
    const double difference = tensor_difference(tensor, other, norm);
    result.equal_to_the_bit = result.equal_to_the_bit && same_bits(tensor, other);
    result.largest = std::max(result.largest, difference);
    result.worst.push_back({name, difference});
    auto& module = modules[name.substr(0, name.find('.'))];
    module = std::max(module, difference);
  }
  result.tensor_count = static_cast<std::int64_t>(a.size());
  std::stable_sort(result.worst.begin(), result.worst.end(),
                   [](const auto& x, const auto& y) { return x.difference > y.difference; });
  result.worst.resize(std::min(kWorstCount, result.worst.size()));
  for (const auto& [name, difference] : modules) result.modules.push_back({name, difference});
  return result;
}

}  // namespace troupe::state
