// A variable, as a parameter server knows it.

#ifndef TF_GC_OPS_PARAMETER_SERVER_VARIABLE_H_
#define TF_GC_OPS_PARAMETER_SERVER_VARIABLE_H_

#include <cstdint>
#include <string>

#include "ops/parameter_server/codec.h"
#include "ops/wire/rows.h"
#include "tensorflow/core/framework/tensor_shape.h"

namespace tf_gc::parameter_server {

struct VariableInfo {
  uint32_t id = 0;  // the same in all processes
  std::string name;
  tensorflow::TensorShape shape;
  CodecSpec push, pull;
  // Until the model has seen so many updates all is float32, both ways.
  int64_t start_step = 0;

  int64_t size() const { return shape.num_elements(); }
};

}  // namespace tf_gc::parameter_server

#endif  // TF_GC_OPS_PARAMETER_SERVER_VARIABLE_H_
