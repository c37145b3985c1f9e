#include <bit>
#include <cstring>
#include <utility>

#include "runtime/observers/observer.hpp"
#include "runtime/vocabulary/named_list.hpp"

namespace troupe::observers {

namespace {

NamedList<ObserverKind>& kinds() {
  static NamedList<ObserverKind> all;
  return all;
}

Error blamed(const std::string& name, const std::string& what, const std::string& fix) {
  return {Errc::invalid_argument, "observer '" + name + "' " + what, "observe.observers", fix};
}

template <class Number>
Number at(const void* data, std::size_t index) {
  Number number;
  std::memcpy(&number, static_cast<const Number*>(data) + index, sizeof number);
  return number;
}

}  // namespace

double Values::operator[](std::size_t index) const {
  switch (dtype_) {
    case Dtype::fp64: return at<double>(data_, index);
    case Dtype::bf16:  // The upper half of an fp32.
      return std::bit_cast<float>(std::uint32_t{at<std::uint16_t>(data_, index)} << 16);
    case Dtype::fp32: break;
  }
  return at<float>(data_, index);
}

Status register_observer(ObserverKind kind) {
  const std::string name = kind.name;
  if (!is_list_name(name))
    return blamed(name, "has no name for a job file", "use small letters, digits, `-` and `_`");
  if (!kind.make) return blamed(name, "has no `make`", "set it");
  if (!kinds().add(std::move(kind)))
    return blamed(name, "is there already", "choose another name, or register it once");
  return Done{};
}

std::vector<std::string> observer_names() {
  std::vector<std::string> names;
  for (const ObserverKind* kind : kinds().all()) names.push_back(kind->name);
  return names;
}

const ObserverKind* find_observer(const std::string& name) { return kinds().find(name); }

}  // namespace troupe::observers
