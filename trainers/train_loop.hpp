#pragma once

#include <concepts>
#include <functional>
#include <sstream>
#include <string>
#include <type_traits>
#include <utility>

#include <cereal/archives/json.hpp>
#include <cereal/archives/portable_binary.hpp>

#include "troupe/runtime/config/rank_hooks.hpp"
#include "troupe/runtime/error.hpp"
#include "troupe/runtime/store/result.hpp"
#include "troupe/trainers/config/fields.hpp"
#include "troupe/trainers/return_value.hpp"
#include "troupe/trainers/train_context.hpp"

namespace troupe {

/// Marks a loop that may be a closure. It runs in `placement::in_process` (or
/// inline) only: a closure cannot be found again in another process.
template <class F>
struct in_process_loop {
  F loop;
};

template <class F>
in_process_loop(F) -> in_process_loop<F>;

} // namespace troupe

namespace troupe::internal {

/// The config of a loop without one.
struct no_config {
  template <class Archive>
  void serialize(Archive&) {}
};

/// What *F* returns; void if it cannot be called.
template <class F, class Config>
struct loop_result {
  using type = void;
};
template <class F, class Config>
  requires std::invocable<const F&, train_context&, const Config&>
struct loop_result<F, Config> {
  using type = std::invoke_result_t<const F&, train_context&, const Config&>;
};
template <class F>
  requires std::invocable<const F&, train_context&>
struct loop_result<F, no_config> {
  using type = std::invoke_result_t<const F&, train_context&>;
};

/// No data plane: for loops without LibTorch.
struct no_backend {
  void prepare(train_context&) const {}
  void run(train_context&, const std::function<void()>& loop) const { loop(); }
  template <class Archive>
  void serialize(Archive&) {}
};

/// The stages of a loop: `prepare` comes before the rank's hooks, so that the
/// process is ready before user code runs.
enum class loop_stage { prepare, run };

/// A user's train loop with its config, ready to run on a rank: as two
/// functions and bytes, which another process of the same program finds again,
/// or as a closure.
class train_loop {
public:
  /// Prepares for or calls the loop behind *loop* with the config in *config*.
  using entry_type = void (*)(train_context&, const void* loop,
                              const std::string& config, loop_stage stage);

  /// A function or captureless lambda that takes a context and a config.
  template <class Backend, class F, class Config>
  static train_loop make(F loop, const Backend& backend, const Config& config) {
    using returned = typename loop_result<F, Config>::type;
    using signature =
      std::conditional_t<std::same_as<Config, no_config>,
                         returned (*)(train_context&),
                         returned (*)(train_context&, const Config&)>;
    static_assert(
      std::is_convertible_v<F, signature>,
      "a train loop is a function or a captureless lambda that takes "
      "(train_context&) or (train_context&, const Config&); a closure runs in "
      "this process only: wrap it as troupe::in_process_loop{closure}");
    train_loop result;
    result.changed = changer(loop, backend, config);
    result.entry = &call<Backend, Config, signature>;
    result.loop = reinterpret_cast<const void*>(static_cast<signature>(loop));
    result.serialize([&] {
      result.config = binary(backend, config);
      result.config_text = json(config);
    });
    return result;
  }

  /// A closure; it gets *config* by value.
  template <class Backend, class F, class Config>
  static train_loop make(in_process_loop<F> x, const Backend& backend,
                         const Config& config) {
    train_loop result;
    result.changed = changer(x, backend, config);
    result.closure = [loop = std::move(x.loop), backend,
                      config](train_context& context, loop_stage stage) {
      if (stage == loop_stage::prepare)
        backend.prepare(context);
      else
        backend.run(context, [&] { invoke(loop, context, config); });
    };
    result.serialize([&] { result.config_text = json(config); });
    return result;
  }

  void operator()(train_context& context, loop_stage stage) const {
    if (closure)
      closure(context, stage);
    else
      entry(context, loop, config, stage);
  }

  entry_type entry = nullptr;
  const void* loop = nullptr;
  std::string config;      ///< Backend and config as cereal wrote them.
  std::string config_text; ///< The config as readable JSON.
  error problem; ///< The exception of the config; no run accepts the loop.
  std::function<void(train_context&, loop_stage)> closure;
  rank_hooks hooks; ///< `run_config::rank_hooks`, for every rank.
  /// The same loop with other values of fields of its config, which is asked
  /// whether it is valid if *is_whole*. Unset if it has no named fields.
  std::function<expected<train_loop>(const field_texts&, bool is_whole)>
    changed;

private:
  template <class Backend, class F, class Config>
  static decltype(changed) changer(const F& loop, const Backend& backend,
                                   const Config& config) {
    if constexpr (has_named_fields<Config> && std::copy_constructible<Config>)
      return [loop, backend, config](const field_texts& texts,
                                     bool is_whole) -> expected<train_loop> {
        auto copy = config;
        TROUPE_TRY_VOID(assign_texts(copy, texts, is_whole));
        return make(loop, backend, copy);
      };
    else
      return {};
  }

  /// Calls *write*, which calls user code.
  template <class Write>
  void serialize(Write write) {
    try {
      write();
    } catch (...) {
      problem = caught("the config of the train loop cannot be serialized");
      problem.code = ec::invalid_config;
    }
  }

  template <class Backend, class Config, class Signature>
  static void call(train_context& context, const void* loop,
                   const std::string& bytes, loop_stage stage) {
    std::istringstream in{bytes};
    cereal::PortableBinaryInputArchive archive{in};
    Backend backend;
    archive(backend);
    if (stage == loop_stage::prepare) {
      backend.prepare(context);
      return;
    }
    Config config;
    archive(config);
    auto f = reinterpret_cast<Signature>(const_cast<void*>(loop));
    backend.run(context, [&] { invoke(f, context, config); });
  }

  template <class F, class Config>
  static void invoke(const F& loop, train_context& context,
                     const Config& config) {
    using returned = typename loop_result<F, Config>::type;
    auto call = [&]() -> returned {
      if constexpr (std::same_as<Config, no_config>)
        return loop(context);
      else
        return loop(context, config);
    };
    if constexpr (std::is_void_v<returned>) {
      call();
    } else {
      return_folder::clear(rank_access{context}.facts());
      returned_value<std::remove_cvref_t<returned>>::write(
        rank_access{context}.facts(), call());
    }
  }

  template <class Backend, class Config>
  static std::string binary(const Backend& backend, const Config& config) {
    std::ostringstream out;
    cereal::PortableBinaryOutputArchive{out}(backend, config);
    return std::move(out).str();
  }

  template <class Config>
  static std::string json(const Config& config) {
    if constexpr (has_named_fields<Config>) {
      return json_text(
        {config_value::table{{"config", to_config_value(config)}}});
    } else {
      std::ostringstream out;
      {
        cereal::JSONOutputArchive archive{
          out, cereal::JSONOutputArchive::Options::NoIndent()};
        archive(cereal::make_nvp("config", config));
      }
      return named_config_text(std::move(out).str());
    }
  }
};

} // namespace troupe::internal
