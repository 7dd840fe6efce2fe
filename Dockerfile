# The command in an image without a shell, run by a user without rights:
#
#     docker build -t vibrant .
#     docker run -it --rm vibrant                                   # on the CPU
#     docker run -it --rm --gpus all -v "$PWD:/models" vibrant chat -m /models/model.gguf
#
# The driver's libraries come from NVIDIA's container toolkit. Kernels for GPUs are compiled from PTX by the driver; the compiled ones
# of CUDA 12 and 13 are in the image with --build-arg DIST_CUDA="12 13", and for one GPU, in less time, --build-arg CUDA_ARCH=90.
FROM golang:1.24-bookworm AS build
ARG DIST_CUDA=none
ARG CUDA_ARCH=all
RUN test "$DIST_CUDA" = none || { apt-get update && apt-get install -y --no-install-recommends python3-pip; }
WORKDIR /src
COPY . .
RUN DIST_ARCH=$(go env GOARCH) scripts/make-dist.sh && scripts/install.sh --prefix /out build/dist

FROM gcr.io/distroless/base-debian12:nonroot
COPY --from=build /out /usr/local
ENV NVIDIA_VISIBLE_DEVICES=all NVIDIA_DRIVER_CAPABILITIES=compute,utility
USER nonroot
ENTRYPOINT ["/usr/local/bin/vibrant"]
CMD ["chat"]
