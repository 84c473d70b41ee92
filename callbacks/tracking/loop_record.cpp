#include "troupe/callbacks/tracking/loop_record.hpp"

#include <charconv>
#include <vector>

#include "troupe/runtime/text.hpp"

namespace troupe::internal {

namespace {

// The kind of each record's event and its fields, for both directions.

bool visit(auto& f, loop_start& x) {
  return f("tracker_start", "project", x.project, "experiment", x.experiment,
           "display_name", x.display_name);
}

bool visit(auto& f, loop_finish& x) {
  return f("tracker_finish", "status", x.status);
}

bool visit(auto& f, logged_metrics& x) {
  return f("tracker_log", "v", x.values, "step", x.step);
}

bool visit(auto& f, logged_params& x) {
  return f("tracker_params", "v", x.values);
}

bool visit(auto& f, logged_text& x) {
  return f("tracker_text", "name", x.name, "text", x.text, "step", x.step);
}

bool visit(auto& f, logged_image& x) {
  return f("tracker_image", "name", x.name, "step", x.step, "file", x.file,
           "width", x.width, "height", x.height, "channels", x.channels);
}

bool visit(auto& f, logged_histogram& x) {
  return f("tracker_histogram", "name", x.name, "step", x.step, "min", x.min,
           "max", x.max, "sum", x.sum, "sum_squares", x.sum_squares, "limits",
           x.limits, "counts", x.counts);
}

bool visit(auto& f, logged_artifact& x) {
  return f("tracker_artifact", "name", x.name, "file", x.path);
}

// Calls *f* with each pair of a name and a value.
template <class F>
void for_each_field(F) {}

template <class F, class T, class... Others>
void for_each_field(F f, const char* name, T& x, Others&... others) {
  f(std::string{name}, x);
  for_each_field(f, others...);
}

struct field_writer {
  loop_event result;

  template <class... Fields>
  bool operator()(const char* kind, Fields&... fields) {
    result.kind = kind;
    for_each_field([this](auto name, auto& x) { put(name, x); }, fields...);
    return true;
  }

  template <class T>
  void put(const std::string& name, const T& x) {
    if constexpr (std::is_same_v<T, metrics>)
      result.fields.add_group(name, x);
    else
      result.fields[name] = as_field(x);
  }

  template <class T>
  static metric_value as_field(const T& x) {
    return x;
  }
  static metric_value as_field(const fs::path& x) { return x.string(); }
  static metric_value as_field(run_status_kind x) { return to_string(x); }

  // Numbers separated by blanks.
  static metric_value as_field(const std::vector<double>& all) {
    std::string text;
    for (auto x : all) {
      if (!text.empty())
        text += ' ';
      append_number(text, x);
    }
    return text;
  }
};

struct field_reader {
  std::string_view wanted;
  const metrics& in;

  template <class... Fields>
  bool operator()(const char* kind, Fields&... fields) {
    if (kind != wanted)
      return false;
    for_each_field([this](auto name, auto& x) { take(name, x); }, fields...);
    return true;
  }

  template <class T>
  void take(const std::string& name, T& x) {
    auto found = in.find(name);
    if constexpr (std::is_same_v<T, metrics>) {
      for (auto& [field, value] : in)
        if (field.starts_with(name + '/'))
          x[field.substr(name.size() + 1)] = value;
    } else if constexpr (std::is_same_v<T, double>) {
      x = in.find_number(name).value_or(0);
    } else if constexpr (std::is_integral_v<T>) {
      if (auto number = found ? as<std::int64_t>(*found) : nullptr)
        x = static_cast<T>(*number);
    } else if (auto text = found ? as<std::string>(*found) : nullptr) {
      from_text(*text, x);
    }
  }

  template <class T>
  static const T* as(const metric_value& x) {
    return std::get_if<T>(&x.variant());
  }

  static void from_text(const std::string& text, std::string& x) { x = text; }
  static void from_text(const std::string& text, fs::path& x) { x = text; }

  static void from_text(const std::string& text, run_status_kind& x) {
    x = run_status_from_string(text).value_or(x);
  }

  static void from_text(const std::string& text, std::vector<double>& x) {
    auto end = text.data() + text.size();
    for (auto at = text.data(); at < end;) {
      double number = 0;
      auto [rest, code] = std::from_chars(at, end, number);
      if (code != std::errc{})
        return;
      x.push_back(number);
      at = rest + (rest < end ? 1 : 0);
    }
  }
};

template <class... Records>
std::optional<loop_record> read(field_reader reader,
                                const std::variant<Records...>&) {
  std::optional<loop_record> result;
  auto is_one = [&](auto x) {
    if (!visit(reader, x))
      return false;
    result = std::move(x);
    return true;
  };
  (is_one(Records{}) || ...);
  return result;
}

} // namespace

loop_event to_event(loop_record x) {
  field_writer writer;
  std::visit([&](auto& record) { visit(writer, record); }, x);
  return std::move(writer.result);
}

std::optional<loop_record> to_loop_record(std::string_view kind,
                                          const metrics& fields) {
  return read({kind, fields}, loop_record{});
}

} // namespace troupe::internal
