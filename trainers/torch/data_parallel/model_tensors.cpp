#include "troupe/trainers/torch/data_parallel/model_tensors.hpp"

#include <algorithm>
#include <unordered_set>
#include <utility>

#include <torch/nn/modules/embedding.h>
#include <torch/script.h>

#include "troupe/runtime/text.hpp"
#include "troupe/trainers/torch/data_parallel/data_parallel_options.hpp"

namespace troupe::internal {

namespace {

/// Collects tensors, each once.
class collector {
public:
  explicit collector(std::vector<named_tensor>& out) : out_(out) {}

  void add(named_tensor x) {
    if (x.tensor.defined()
        && seen_.insert(x.tensor.unsafeGetTensorImpl()).second)
      out_.push_back(std::move(x));
  }

private:
  std::vector<named_tensor>& out_;
  std::unordered_set<const void*> seen_;
};

/// What an embedding does with its weight.
struct embedding_traits {
  bool sparse = false;
  bool has_max_norm = false;
};

embedding_traits traits_of(const torch::nn::Module& owner) {
  auto of = [](auto& x) {
    return embedding_traits{x.sparse(), x.max_norm().has_value()};
  };
  if (auto embedding = owner.as<torch::nn::EmbeddingImpl>())
    return of(embedding->options);
  if (auto bag = owner.as<torch::nn::EmbeddingBagImpl>())
    return of(bag->options);
  return {};
}

/// A scripted embedding keeps its options as attributes or constants.
embedding_traits traits_of(const torch::jit::Module& owner) {
  auto type = owner.type();
  if (!type->name() || type->name()->name().find("Embedding") != 0)
    return {};
  auto option = [&](const std::string& name) {
    if (type->hasConstant(name))
      return type->getConstant(name);
    return owner.hasattr(name) ? owner.attr(name) : c10::IValue{};
  };
  auto sparse = option("sparse");
  return {sparse.isBool() && sparse.toBool(), !option("max_norm").isNone()};
}

void collect(const torch::nn::Module& module, const std::string& prefix,
             collector& parameters, collector& buffers) {
  auto [sparse, has_max_norm] = traits_of(module);
  for (auto& x : module.named_parameters(/*recurse*/ false))
    parameters.add({prefix + x.key(), x.value(), sparse, has_max_norm});
  for (auto& x : module.named_buffers(/*recurse*/ false))
    buffers.add({prefix + x.key(), x.value()});
  for (auto& child : module.named_children())
    collect(*child.value(), prefix + child.key() + '.', parameters, buffers);
}

void collect(const torch::jit::Module& module, const std::string& prefix,
             collector& parameters, collector& buffers) {
  auto [sparse, has_max_norm] = traits_of(module);
  for (auto x : module.named_parameters(/*recurse*/ false))
    parameters.add({prefix + x.name, x.value, sparse, has_max_norm});
  for (auto x : module.named_buffers(/*recurse*/ false))
    buffers.add({prefix + x.name, x.value});
  for (auto child : module.named_children())
    collect(child.value, prefix + child.name + '.', parameters, buffers);
}

/// Opens the list that `parameters()` of a module copies, names and all.
struct open_module : torch::nn::Module {
  static const auto& parameters(const torch::nn::Module& x) {
    return x.*&open_module::parameters_;
  }
};

template <class Module>
model_tensors all_of(std::string name, const Module& module) {
  model_tensors result{std::move(name), {}, {}};
  collector parameters{result.parameters};
  collector buffers{result.buffers};
  collect(module, "", parameters, buffers);
  return result;
}

bool has_tensor(const model_tensors& model, const std::string& name) {
  auto has = [&](auto& list) {
    return std::ranges::find(list, name, &named_tensor::name) != list.end();
  };
  return has(model.parameters) || has(model.buffers);
}

} // namespace

model_tensors tensors_of(const torch::nn::Module& module) {
  return all_of(module.name(), module);
}

model_tensors tensors_of(const torch::jit::Module& module) {
  auto name = module.type()->name();
  return all_of(name ? name->name() : "torch.jit.Module", module);
}

void append_parameters(const torch::nn::Module& module,
                       std::vector<c10::TensorImpl*>& out) {
  module.apply([&out](const torch::nn::Module& part) {
    for (auto& x : open_module::parameters(part))
      if (x.value().defined())
        out.push_back(x.value().unsafeGetTensorImpl());
  });
}

void append_parameters(const torch::jit::Module& module,
                       std::vector<c10::TensorImpl*>& out) {
  for (const auto& x : module.parameters())
    if (x.defined())
      out.push_back(x.unsafeGetTensorImpl());
}

void replace_tensors(c10::IValue& value,
                     const std::function<at::Tensor(at::Tensor)>& f) {
  if (value.isTensor()) {
    if (value.toTensor().defined())
      value = f(value.toTensor());
  } else if (value.isTuple()) {
    auto elements = value.toTupleRef().elements().vec();
    for (auto& element : elements)
      replace_tensors(element, f);
    value = c10::ivalue::Tuple::createNamed(std::move(elements), value.type());
  } else if (value.isList()) {
    auto list = value.toList();
    for (size_t i = 0; i < list.size(); ++i) {
      c10::IValue element = list.get(i);
      replace_tensors(element, f);
      list.set(i, std::move(element));
    }
  } else if (value.isGenericDict()) {
    auto dict = value.toGenericDict();
    for (auto& entry : dict) {
      c10::IValue element = entry.value();
      replace_tensors(element, f);
      entry.setValue(std::move(element));
    }
  }
}

bool is_ignored(const data_parallel_options& options, const std::string& name) {
  return std::ranges::find(options.ignored, name) != options.ignored.end();
}

bool has_gradient(const at::Tensor& parameter) {
  auto& gradient = parameter.grad();
  return gradient.defined()
         && gradient.to_dense().count_nonzero().item<std::int64_t>() > 0;
}

std::vector<named_tensor> reduced_of(const model_tensors& model,
                                     const data_parallel_options& options) {
  std::vector<named_tensor> result;
  for (auto& x : model.parameters)
    if (x.tensor.requires_grad() && !is_ignored(options, x.name))
      result.push_back(x);
  return result;
}

std::string problem_of(const model_tensors& model,
                       const data_parallel_options& options) {
  if (options.compression != gradient_compression::none)
    for (auto& x : model.parameters)
      if (x.sparse_gradient && x.tensor.requires_grad()
          && !is_ignored(options, x.name))
        return "gradients of " + x.name
               + " are sparse and cannot be compressed";
  for (auto& x : model.parameters)
    if (x.changes_in_forward && !is_ignored(options, x.name))
      return x.name
             + " belongs to an embedding with a max_norm, whose forward scales "
               "the rows of its own batch, so that the ranks' weights would "
               "differ: leave it out, and after each step call "
               "weight.renorm_(...) without gradients instead";
  if ((options.bucket_bytes && *options.bucket_bytes <= 0)
      || std::any_of(options.bucket_bytes_list.begin(),
                     options.bucket_bytes_list.end(),
                     [](auto x) { return x <= 0; })
      || options.broadcast_bytes <= 0)
    return "sizes of buckets and broadcasts have to be positive";
  if (options.comm_hook && options.compression != gradient_compression::none)
    return "data_parallel_options has a comm_hook and a compression, but a "
           "hook decides itself in what form gradients travel: set one of them";
  for (auto& name : options.ignored)
    if (!has_tensor(model, name))
      return concat("data_parallel_options::ignored has ", name, ", but model ",
                    model.model, " has no parameter or buffer of that name");
  return {};
}

std::string problem_of(const model_tensors& model,
                       const std::vector<named_tensor>& trained,
                       const data_parallel_options& options) {
  if (trained.empty())
    return "model " + model.model
           + " has no parameter that requires a gradient, so there is nothing "
             "to train";
  auto& first = trained.front();
  for (auto& x : trained)
    if (x.tensor.device() != first.tensor.device())
      return concat("parameters of model ", model.model,
                    " lie on several devices: ", first.name, " on ",
                    first.tensor.device().str(), ", ", x.name, " on ",
                    x.tensor.device().str());
  return problem_of(model, options);
}

} // namespace troupe::internal
