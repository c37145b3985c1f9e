// The hyperparameters of one model family, of any type: each family has values of its own, and who
// hands them on need not know them.

#pragma once

#include <memory>
#include <type_traits>
#include <typeinfo>
#include <utility>

namespace troupe {

/// Holds a copy of any plain struct (an aggregate) that can be compared; or nothing. Copies share
/// it until one is edited.
///
/// A value: thread-safe as an int is.
class FamilyConfig {
 public:
  FamilyConfig() = default;  ///< Holds nothing.
  template <class Config>
  requires std::is_aggregate_v<Config> FamilyConfig(
      Config config)  // NOLINT: who has the values has this.
      : held_(std::make_shared<Held<Config>>(std::move(config))) {}  ///< Holds these.

  /// The values where they are of this type, else nullptr.
  template <class Config>
  const Config* get_if() const {
    // By type_info, not by address: a family of a plug-in has its types in another library.
    return held_ && held_->type() == typeid(Config)
               ? &static_cast<const Held<Config>&>(*held_).config
               : nullptr;
  }
  /// Throws std::logic_error, with both types and what to set, where they are of another one: a
  /// plug-in's family may have forgotten its `defaults`.
  template <class Config>
  const Config& as() const {
    const Config* values = get_if<Config>();
    if (values == nullptr) refuse(typeid(Config));
    return *values;
  }
  /// The same, to change them; copies made before keep theirs.
  template <class Config>
  Config& edit() {
    held_ = std::make_shared<Held<Config>>(as<Config>());
    return const_cast<Config&>(as<Config>());
  }
  /// Whether both hold values of the same type.
  bool is_like(const FamilyConfig& other) const {
    return held_ && other.held_ && held_->type() == other.held_->type();
  }

  friend bool operator==(const FamilyConfig& a, const FamilyConfig& b) {
    return a.held_.get() == b.held_.get() || (a.is_like(b) && a.held_->equals(*b.held_));
  }

 private:
  [[noreturn]] void refuse(const std::type_info& asked) const;

  struct Base {
    virtual ~Base() = default;
    virtual const std::type_info& type() const = 0;
    virtual bool equals(const Base& other) const = 0;  // REQUIRES: of the same type.
  };
  template <class Config>
  struct Held : Base {
    explicit Held(Config values) : config(std::move(values)) {}
    const std::type_info& type() const override { return typeid(Config); }
    bool equals(const Base& other) const override {
      return config == static_cast<const Held&>(other).config;
    }
    Config config;
  };

  std::shared_ptr<const Base> held_;
};

}  // namespace troupe
