package serving

import (
	"context"
	"fmt"
	"net"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// externalAddr returns the address of a server that runs outside the cluster.
func (r *registrar) externalAddr() (*net.TCPAddr, error) {
	a, ok := r.opts.External.(*net.TCPAddr)
	if !ok {
		return nil, fmt.Errorf("%v is not a TCP address", r.opts.External)
	}
	if a.IP.IsUnspecified() {
		ip, err := hostAddress()
		if err != nil {
			return nil, err
		}
		return &net.TCPAddr{IP: ip, Port: a.Port}, nil
	}
	return a, nil
}

// byName reports whether the address must be registered by name, because endpoints cannot be loopback addresses.
func (r *registrar) byName() bool {
	a, err := r.externalAddr()
	return err == nil && a.IP.IsLoopback()
}

// servicePort returns the port for the APIService: the Service's, or our own when registered by name, because then
// the address is dialled directly.
func (r *registrar) servicePort() int32 {
	if r.opts.External != nil && r.byName() {
		a, _ := r.externalAddr()
		return int32(a.Port)
	}
	return r.opts.Port
}

// ensureExternalService creates a Service without a selector that leads to this server.
func (r *registrar) ensureExternalService(ctx context.Context) error {
	addr, err := r.externalAddr()
	if err != nil {
		return err
	}
	want := corev1.ServiceSpec{Type: corev1.ServiceTypeClusterIP, Ports: []corev1.ServicePort{{Name: servicePortName, Port: r.opts.Port}}}
	if addr.IP.IsLoopback() {
		want = corev1.ServiceSpec{Type: corev1.ServiceTypeExternalName, ExternalName: "localhost"}
	}
	svc := &corev1.Service{ObjectMeta: metav1.ObjectMeta{Namespace: r.opts.Namespace, Name: r.opts.Service}}
	err = r.client.Get(ctx, client.ObjectKeyFromObject(svc), svc)
	switch {
	case err == nil && len(svc.Spec.Selector) > 0:
		return fmt.Errorf("service %s/%s: %w", r.opts.Namespace, r.opts.Service, errInCluster)
	case err == nil && svc.Spec.Type != want.Type:
		if err := r.client.Delete(ctx, svc); client.IgnoreNotFound(err) != nil {
			return err
		}
		svc = &corev1.Service{ObjectMeta: metav1.ObjectMeta{Namespace: r.opts.Namespace, Name: r.opts.Service}}
	case client.IgnoreNotFound(err) != nil:
		return err
	}
	if svc.ResourceVersion == "" {
		svc.Spec = want
		setManaged(&svc.ObjectMeta)
		if err := r.client.Create(ctx, svc); err != nil {
			return err
		}
	}
	if addr.IP.IsLoopback() {
		return nil
	}
	return r.ensureEndpoint(ctx, svc, addr)
}

func (r *registrar) ensureEndpoint(ctx context.Context, svc *corev1.Service, addr *net.TCPAddr) error {
	family := discoveryv1.AddressTypeIPv4
	if addr.IP.To4() == nil {
		family = discoveryv1.AddressTypeIPv6
	}
	slice := &discoveryv1.EndpointSlice{ObjectMeta: metav1.ObjectMeta{Namespace: svc.Namespace, Name: svc.Name + "-external"}}
	err := r.client.Get(ctx, client.ObjectKeyFromObject(slice), slice)
	if client.IgnoreNotFound(err) != nil {
		return err
	}
	missing := apierrors.IsNotFound(err)
	if !missing && slice.AddressType != family { // the address type cannot be changed
		if err := r.client.Delete(ctx, slice); client.IgnoreNotFound(err) != nil {
			return err
		}
		slice = &discoveryv1.EndpointSlice{ObjectMeta: metav1.ObjectMeta{Namespace: svc.Namespace, Name: svc.Name + "-external"}}
		missing = true
	}
	setManaged(&slice.ObjectMeta)
	slice.Labels[discoveryv1.LabelServiceName] = svc.Name
	slice.Labels[discoveryv1.LabelManagedBy] = "manager.skein.dev" // so that the endpoint slice controller ignores it
	slice.OwnerReferences = []metav1.OwnerReference{{APIVersion: "v1", Kind: "Service", Name: svc.Name, UID: svc.UID}}
	slice.AddressType = family
	slice.Endpoints = []discoveryv1.Endpoint{{Addresses: []string{addr.IP.String()}, Conditions: discoveryv1.EndpointConditions{Ready: ptr.To(true)}}}
	slice.Ports = []discoveryv1.EndpointPort{{Name: ptr.To(servicePortName), Port: ptr.To(int32(addr.Port)), Protocol: ptr.To(corev1.ProtocolTCP)}}
	if missing {
		return r.client.Create(ctx, slice)
	}
	return r.client.Update(ctx, slice)
}

// hostAddress returns an address of this machine that is valid for an endpoint.
func hostAddress() (net.IP, error) {
	addrs, err := net.InterfaceAddrs()
	if err != nil {
		return nil, err
	}
	var v6 net.IP
	for _, a := range addrs {
		n, ok := a.(*net.IPNet)
		if !ok || !n.IP.IsGlobalUnicast() {
			continue
		}
		if ip := n.IP.To4(); ip != nil {
			return ip, nil
		}
		v6 = n.IP
	}
	if v6 != nil {
		return v6, nil
	}
	return nil, fmt.Errorf("this machine has only loopback addresses: listen on 127.0.0.1 and run the API server without --enable-aggregator-routing")
}
