#include "troupe/trainers/torch/data_parallel/output_tensors.hpp"

namespace troupe {

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

} // namespace troupe
